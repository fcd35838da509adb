"""Attention over a projection that makes q, k and v at once."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.packed import check_heads, packed_attention

__all__ = ["FusePackedAttentionTraining"]


class FusePackedAttentionTraining(Fusion):
    """FusedAttention of the three parts of a Split → fuseline.FusedAttentionPacked of the whole"""

    name: ClassVar[str] = "fuse-packed-attention-training"
    phase: ClassVar[Phase] = "pre-gradient"
    produces: ClassVar[tuple[str, ...]] = ("FusedAttentionPacked",)

    def match(
        self,
        op: Op,
        qkv: Any,
        sizes: Any,
        shape_q: Any,
        shape_k: Any,
        shape_v: Any,
        mask: Any,
        bias: Any,
        ratio: Any,
        seed: Any,
    ) -> Any:
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

    def check(self, qkv: Any, context: Context) -> str | None:
        return check_heads(context, qkv)

    def replace(self, op: Builder, qkv: Any, context: Context) -> Any:
        heads, size = (dims_of(context.node("q").outputs[0]) or ())[2:]
        assert isinstance(heads, int)
        assert isinstance(size, int)
        return packed_attention(op, context, qkv, heads, size)
