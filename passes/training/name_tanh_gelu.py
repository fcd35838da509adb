"""The pass `name-tanh-gelu`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["NameTanhGelu"]


class NameTanhGelu(LocalRewrite):
    """Gelu(approximate=tanh) → com.microsoft.FastGelu; Gelu → com.microsoft.Gelu

    The gradient of the standard Gelu is always the exact one's.
    """

    name = "name-tanh-gelu"
    operators = ("Gelu",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        return True

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        tanh = attribute(node, "approximate", "none") == "tanh"
        return op.node("FastGelu" if tanh else "Gelu", node.inputs[0], _domain="com.microsoft")
