"""Softmax written out."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.values import is_last_axis

__all__ = ["FuseSoftmax"]


class FuseSoftmax(Fusion):
    """Exp(x−max)/ReduceSum(Exp(x−max)) over the last axis → Softmax(x)"""

    name = "fuse-softmax"
    produces = ("Softmax",)

    def match(self, op: Op, x: Term, axes: Term) -> Term:
        top = op.one_of(op.ReduceMax(x, axes, keepdims=1), op.ReduceMax(x, axes=axes, keepdims=1))
        power = op.Exp(op.Sub(x, top))
        return op.Div(power, op.ReduceSum(power, axes, keepdims=1))

    def check(self, x: ir.Value, axes: ir.Value, context: Context) -> str | None:
        return is_last_axis(context, axes, x)

    def replace(self, op: Builder, x: ir.Value) -> ir.Value:
        return op.Softmax(x, axis=-1)
