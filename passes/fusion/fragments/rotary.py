"""Rotary position embedding as exporters write it out."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Context, Op, Term
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.values import last_dim

__all__ = ["check_halves", "rotate_half"]


def rotate_half(
    op: Op, x: Term, start: Term, stop: Term, axes: Term, steps: Term, start_2: Term, stop_2: Term
) -> Term:
    """Concat(−x[half:], x[:half])"""
    second = op.Slice(x, start, stop, axes, steps, _label="second")
    first = op.Slice(x, start_2, stop_2, axes, steps, _label="first")
    left, right = op.Split(x, axis=-1, _outputs=2)
    left_sized, right_sized = op.Split(x, start_2, axis=-1, _outputs=2)
    return op.one_of(
        op.Concat(op.Neg(second), first, axis=-1),
        op.Concat(op.Neg(right), left, axis=-1),
        op.Concat(op.Neg(right_sized), left_sized, axis=-1),
    )


def check_halves(context: Context, x: ir.Value) -> str | None:
    """Whether the two parts are the second and the first half of the last axis."""
    width = last_dim(x)
    if width is None or width % 2:
        return f"the width of {x.name!r} is {width}, not an even number"
    if not context.has("first"):
        return None
    for label, expected in (("second", (width // 2, width)), ("first", (0, width // 2))):
        node = context.node(label)
        found = _bounds(context, node, width, len(dims_of(x) or ()))
        if found != expected:
            return f"{node.name!r} takes {found} of {width}, not {expected}"
    return None


def _bounds(context: Context, node: ir.Node, width: int, rank: int) -> tuple[int, int] | None:
    """Start and end of a Slice along the last axis, by ones."""
    values = [context.scalar(v) for v in node.inputs[1:]]
    if len(values) < 3 or any(v is None for v in values):
        return None
    start, stop, axis, *step = (int(v) for v in values if v is not None)
    if axis not in (-1, rank - 1) or step not in ([], [1]):
        return None
    return min(start if start >= 0 else start + width, width), min(stop if stop >= 0 else stop + width, width)
