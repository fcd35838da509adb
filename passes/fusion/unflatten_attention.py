"""Attention over batch and heads in one dimension, as torch's bmm and baddbmm have it."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.attention import scaled
from fuseline.passes.fusion.fragments.shapes import shape_vector

__all__ = ["UnflattenAttention"]


class UnflattenAttention(Fusion):
    """Reshape(q₃·k₃ᵀ·scale+bias₃) of [B·H,S,D] → q·kᵀ·scale+bias of [B,H,S,D], which other passes fuse"""

    name = "unflatten-attention"
    produces = ("MatMul",)

    def match(
        self,
        op: Op,
        q: Term,
        k: Term,
        flat_q: Term,
        flat_k: Term,
        scale: Term,
        divisor: Term,
        bias: Term,
        shape: Term,
    ) -> Term:
        keys = op.Transpose(op.Reshape(k, flat_k), perm=(0, 2, 1))
        scores = scaled(op, op.MatMul(op.Reshape(q, flat_q, _shared=True), keys), scale, divisor)
        return op.Reshape(op.one_of(op.Add(scores, bias), scores), shape)

    def check(self, q: ir.Value, k: ir.Value, context: Context, bias: ir.Value | None = None) -> str | None:
        made, left, right = dims_of(context.match.root.outputs[0]), dims_of(q), dims_of(k)
        for shape in (made, left, right):
            if shape is None or len(shape) != 4 or None in shape:
                return f"the shapes {left}, {right} and {made} are not all [batch, heads, length, size]"
        assert made is not None
        assert left is not None
        assert right is not None
        if made[:3] != left[:3] or made[3] != right[2] or left[:2] != right[:2]:
            return f"{left} and {right} do not make scores of the shape {made}"
        if bias is not None and len(dims_of(bias) or ()) != 3:
            return f"{bias.name!r} has the shape {dims_of(bias)}, not [batch·heads, length or 1, length or 1]"
        return None

    def replace(
        self,
        op: Builder,
        q: ir.Value,
        k: ir.Value,
        context: Context,
        scale: ir.Value | None = None,
        divisor: ir.Value | None = None,
        bias: ir.Value | None = None,
    ) -> ir.Value:
        scores = op.MatMul(q, op.Transpose(k, perm=(0, 1, 3, 2)))
        if scale is not None:
            scores = op.Mul(scores, scale)
        if divisor is not None:
            scores = op.Div(scores, divisor)
        if bias is None:
            return scores
        batch, heads = (dims_of(k) or ())[:2]
        parted = (batch, heads, *(dims_of(bias) or ())[1:])
        return op.Add(scores, op.Reshape(bias, shape_vector(op, parted, (q, k, bias))))
