"""Attention over a projection that makes q, k and v at once."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.packed import check_heads, packed_attention

__all__ = ["FusePackedAttentionTraining"]


class FusePackedAttentionTraining(Fusion):
    """FusedAttention of the three parts of a Split → fuseline.FusedAttentionPacked of the whole"""

    name = "fuse-packed-attention-training"
    phase = "pre-gradient"
    produces = ("FusedAttentionPacked",)

    def match(
        self,
        op: Op,
        qkv: Term,
        sizes: Term,
        shape_q: Term,
        shape_k: Term,
        shape_v: Term,
        mask: Term,
        bias: Term,
        ratio: Term,
        seed: Term,
    ) -> Term:
        ways = []
        for inputs in ((qkv, sizes), (qkv,)):
            parts = op.Split(*inputs, axis=-1, _outputs=3)
            heads = [
                op.Reshape(part, shape, _label=label)
                for part, shape, label in zip(parts, (shape_q, shape_k, shape_v), "qkv", strict=True)
            ]
            ways.append(
                op.FusedAttention(*heads, mask, bias, ratio, seed, _domain="fuseline", _label="attention")
            )
        return op.one_of(*ways)

    def check(self, qkv: ir.Value, context: Context) -> str | None:
        return check_heads(context, qkv)

    def replace(self, op: Builder, qkv: ir.Value, context: Context) -> ir.Value:
        heads, size = (dims_of(context.node("q").outputs[0]) or ())[2:]
        assert isinstance(heads, int)
        assert isinstance(size, int)
        return packed_attention(op, context, qkv, heads, size)
