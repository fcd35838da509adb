"""The pass `decompose-sums`."""

from __future__ import annotations

import functools

import onnx_ir as ir

from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["DecomposeSums"]


class DecomposeSums(LocalRewrite):
    """Sum(a, b, c, …) → Add(Add(a, b), c) …; Mean likewise, divided by their number"""

    name = "decompose-sums"
    phase = "any"
    operators = ("Sum", "Mean")

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        values = [v for v in node.inputs if v is not None]
        total = functools.reduce(lambda a, b: op.Add(a, b), values)
        if node.op_type == "Mean":
            return op.Div(total, float(len(values)))
        return total if len(values) > 1 else op.Identity(total)
