"""The pass `native-softmax`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["NativeSoftmax"]


class NativeSoftmax(LocalRewrite):
    """Softmax over the last axis → fuseline.FusedSoftmax, whose gradient is ours too"""

    name = "native-softmax"
    operators = ("Softmax",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        x = node.inputs[0]
        assert x is not None
        axis, rank = attribute(node, "axis", -1), rank_of(x)
        if axis != -1 and (rank is None or axis != rank - 1):
            return f"it works on axis {axis}, not the last"
        return x.dtype == ir.DataType.FLOAT or f"its type is {x.dtype}, not float32"

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        return op.FusedSoftmax(node.inputs[0], _domain="fuseline")
