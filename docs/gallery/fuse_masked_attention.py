"""10. Attention with a mask: a large pattern, conditions on shapes, and reasons when they fail."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term


class FuseMaskedAttention(Fusion):
    """Softmax(q·kᵀ·scale+mask)·v over [B,H,S,D] → com.microsoft.MultiHeadAttention

    The library's own `fuse-attention` knows many more forms; this is its heart.
    """

    name = "fuse-masked-attention"
    phase = "inference"
    produces = ("MultiHeadAttention",)

    def match(self, op: Op, q: Term, k: Term, v: Term, scale: Term, mask: Term) -> Term:
        scores = op.Mul(op.MatMul(q, op.Transpose(k, perm=(0, 1, 3, 2))), scale)
        return op.MatMul(op.Softmax(op.Add(scores, mask), axis=-1), v)

    def check(
        self, q: ir.Value, k: ir.Value, v: ir.Value, scale: ir.Value, mask: ir.Value, context: Context
    ) -> str | None:
        if context.scalar(scale) is None:
            return f"the scale {scale.name!r} is not a constant"
        shape = [None] * 4 if q.shape is None else list(q.shape)
        if len(shape) != 4 or not isinstance(shape[1], int) or not isinstance(shape[3], int):
            return f"{q.name!r} has the shape {q.shape}, not [batch, heads, length, size]"
        if mask.shape is None or len(mask.shape) != 4 or mask.shape[1] != shape[1]:
            return f"the mask {mask.name!r} has the shape {mask.shape}, not one row per head"
        return None

    def replace(
        self,
        op: Builder,
        q: ir.Value,
        k: ir.Value,
        v: ir.Value,
        scale: ir.Value,
        mask: ir.Value,
        context: Context,
    ) -> ir.Value:
        _, heads, _, size = q.shape
        # The kernel wants queries as [B, S, H·D]; keys and values it also takes as they are.
        rows = op.Reshape(op.Transpose(q, perm=(0, 2, 1, 3)), [0, 0, heads * size])
        y = op.MultiHeadAttention(
            rows,
            k,
            v,
            None,
            None,
            mask,
            num_heads=heads,
            scale=context.scalar(scale),
            _domain="com.microsoft",
        )
        return op.Transpose(op.Reshape(y, [0, 0, heads, size]), perm=(0, 2, 1, 3))
