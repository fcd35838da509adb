"""Rotary position embedding of the first part of each head."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of, equal

__all__ = ["FusePartialRotary"]


class FusePartialRotary(Fusion):
    """Concat(RotaryEmbedding(x[:r]), x[r:]) → com.microsoft.RotaryEmbedding<rotary_embedding_dim=r>(x)"""

    name = "fuse-partial-rotary"
    phase = "inference"
    counterpart = "fuse-rotary-training"
    produces = ("RotaryEmbedding",)

    def match(
        self,
        op: Op,
        x: Term,
        positions: Term,
        cos: Term,
        sin: Term,
        start: Term,
        middle: Term,
        axes: Term,
        stop: Term,
        steps: Term | None = None,
    ) -> Term:
        rotated, kept = op.Slice(x, start, middle, axes, steps), op.Slice(x, middle, stop, axes, steps)
        left, right = op.Split(x, start, axis=-1, _outputs=2)
        rotate = "com.microsoft"
        return op.one_of(
            op.Concat(op.RotaryEmbedding(rotated, positions, cos, sin, _domain=rotate), kept, axis=-1),
            op.Concat(op.RotaryEmbedding(left, positions, cos, sin, _domain=rotate), right, axis=-1),
        )

    def check(self, x: ir.Value, cos: ir.Value, context: Context) -> str | None:
        shape, made = dims_of(x), dims_of(context.match.root.outputs[0])
        if shape is None or len(shape) != 4 or not isinstance(shape[1], int):
            return f"{x.name!r} has the shape {shape}, not [batch, heads, length, size]"
        captures = context.match.captures
        axis = context.scalar(captures.get("axes"))
        if "axes" in captures and (axis not in (-1, 3) or context.scalar(captures["start"]) != 0):
            return "the parts are not the beginning and the rest of the last axis"
        if not equal(shape, made):
            return f"{x.name!r} {shape} and the result {made} differ in shape"
        return None

    def replace(
        self, op: Builder, x: ir.Value, positions: ir.Value, cos: ir.Value, sin: ir.Value, context: Context
    ) -> ir.Value:
        width = _rotated_width(context)
        return op.RotaryEmbedding(
            x,
            positions,
            cos,
            sin,
            num_heads=(dims_of(x) or ())[1],
            rotary_embedding_dim=width,
            _domain="com.microsoft",
        )


def _rotated_width(context: Context) -> int:
    inner = context.match.root.inputs[0]
    width = (dims_of(inner) or ())[-1]
    assert isinstance(width, int)
    return width
