"""The pass `native-gelu`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite
from fuseline.passes.training.native import EMPTY

__all__ = ["NativeGelu"]


class NativeGelu(LocalRewrite):
    """Gelu, com.microsoft.Gelu, FastGelu, BiasGelu → fuseline.FusedBiasGelu or FusedBiasGeluTanh"""

    name = "native-gelu"
    operators = ("Gelu", "com.microsoft::Gelu", "com.microsoft::FastGelu", "com.microsoft::BiasGelu")

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        x = node.inputs[0]
        assert x is not None
        return x.dtype in (ir.DataType.FLOAT, None) or f"its type is {x.dtype}, not float32"

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x, *rest = node.inputs
        bias = rest[0] if rest and rest[0] is not None else EMPTY
        tanh = node.op_type == "FastGelu" or attribute(node, "approximate", "none") == "tanh"
        return op.node("FusedBiasGeluTanh" if tanh else "FusedBiasGelu", x, bias, _domain="fuseline")
