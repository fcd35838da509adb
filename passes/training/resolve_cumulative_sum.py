"""The pass `resolve-cumulative-sum`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["ResolveCumulativeSum"]


class ResolveCumulativeSum(LocalRewrite):
    """CumSum(exclusive or reverse) → the plain CumSum, whose gradient is known, and what is missing to it"""

    name = "resolve-cumulative-sum"
    operators = ("CumSum",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        x = node.inputs[0]
        if x is None or x.dtype is None or not x.dtype.is_floating_point():
            return False
        return bool(attribute(node, "exclusive", 0) or attribute(node, "reverse", 0))

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x, axis = node.inputs
        forward = op.CumSum(x, axis)
        if not attribute(node, "reverse", 0):
            return op.Sub(forward, x)
        # An axis may be int32, axes may not.
        wide = (
            axis if axis is None or axis.dtype == ir.DataType.INT64 else op.Cast(axis, to=ir.DataType.INT64)
        )
        total = op.ReduceSum(x, op.Reshape(wide, [1]), keepdims=1)
        after = op.Sub(total, forward)
        return after if attribute(node, "exclusive", 0) else op.Add(after, x)
