"""A constant factor on the queries of attention."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.values import fits_attribute

__all__ = ["FuseAttentionScale"]


class FuseAttentionScale(Fusion):
    """MultiHeadAttention(q·c, k, v) → com.microsoft.MultiHeadAttention<scale·c>(q, k, v)"""

    name = "fuse-attention-scale"
    phase = "inference"
    counterpart = "fuse-attention-training"
    produces = ("MultiHeadAttention",)

    def match(self, op: Op, q: Term, factor: Term, scale: Term, *rest: Term) -> Term:
        return op.MultiHeadAttention(
            op.Mul(q, factor), *rest, scale=scale, _domain="com.microsoft", _label="attention"
        )

    def check(self, factor: ir.Value, scale: float | None, context: Context) -> str | None:
        if not context.scalar(factor):
            return f"the factor {factor.name!r} is not a constant other than 0"
        if not scale:
            return "the scale of the attention is left to the runtime"
        total = scale * (context.scalar(factor) or 1.0)
        return None if fits_attribute(total) else f"the scale would be {total:g}, no number of 32 bits"

    def replace(self, op: Builder, q: ir.Value, factor: ir.Value, scale: float, context: Context) -> ir.Value:
        node = context.node("attention")
        total = scale * (context.scalar(factor) or 1.0)
        return op.copy(node, [q, *node.inputs[1:]], {"scale": total})[0]
