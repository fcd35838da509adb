"""Masks for ONNX Runtime's attention kernels, from what models add to the scores or replace in them.

The kernels take a mask of integers, [B,T] or [B,S,T], and a bias of exactly [B,H,S,T]. Version 1.19 has two
traps, neither of which is an error there: a bias with a dimension of 1 is read beyond its end, and a mask is
applied to the wrong scores unless there are as many keys as queries. Then a mask goes in as a bias. So does
one of −inf, whose rows without any key are NaN and not alike, and one of integers that may be others than 0
and 1, of which a kernel only asks whether they are above 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fuseline.engine.nodes import is_op
from fuseline.engine.patterns import Builder, Context
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.shapes import shape_vector

__all__ = ["MaskInputs", "Scores", "mask_inputs"]

LOWEST = float(np.finfo(np.float32).min)
Shape = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Scores:
    """The dimensions of the scores, and values they can be read from."""

    batch: int | str | None
    heads: int
    queries: int | str | None
    keys: int | str | None
    likes: tuple[ir.Value, ...]


@dataclass(frozen=True)
class MaskInputs:
    mask: ir.Value | None = None
    bias: ir.Value | None = None
    filter_value: float | None = None


@dataclass(frozen=True)
class _Choice:
    """A boolean choice of scores: kept where `value` is true, or where it is false."""

    value: ir.Value
    inverted: bool
    lowest: float


def mask_inputs(op: Builder, context: Context, scores: Scores) -> MaskInputs:
    """Mask and bias for the captures mask, bias, keep, drop and lowest of an attention match."""
    captures = context.match.captures
    choice = _captured_choice(context)
    added: list[ir.Value] = [captures[name] for name in ("bias", "mask") if captures.get(name) is not None]
    square = scores.queries is not None and scores.queries == scores.keys
    if choice is None and square and len(added) == 1:
        # What is added may itself be a choice between 0 and a very low number.
        found = _as_choice(context, added[0])
        if found is not None and _fits(found.value) and found.lowest >= LOWEST:
            choice, added = found, []
    elif choice is not None and (not square or choice.lowest < LOWEST):
        added.append(_as_bias(op, choice))
        choice = None
    return MaskInputs(
        None if choice is None else _integer_mask(op, choice, scores),
        _full_bias(op, added, scores) if added else None,
        None if choice is None else choice.lowest,
    )


def _as_bias(op: Builder, choice: _Choice) -> ir.Value:
    """0 where a score is kept, and a very low number where not."""
    return op.Where(choice.value, *((choice.lowest, 0.0) if choice.inverted else (0.0, choice.lowest)))


def _captured_choice(context: Context) -> _Choice | None:
    captures = context.match.captures
    lowest = context.scalar(captures.get("lowest"))
    if captures.get("keep") is not None:
        return _Choice(captures["keep"], False, lowest or LOWEST)
    if captures.get("drop") is not None:
        return _Choice(captures["drop"], True, lowest or LOWEST)
    return None


def _as_choice(context: Context, value: ir.Value) -> _Choice | None:
    """Where(keep, 0, lowest), or (1 − keep)·lowest of a mask that holds 0 and 1."""
    node = value.producer()
    if node is None:
        return None
    if node.op_type == "Where":
        kept, dropped = context.scalar(node.inputs[1]), context.scalar(node.inputs[2])
        condition = node.inputs[0]
        if condition is None or kept is None or dropped is None:
            return None
        if kept == 0 and dropped <= -1e4:
            return _Choice(condition, False, dropped)
        if dropped == 0 and kept <= -1e4:
            return _Choice(condition, True, kept)
        return None
    return _as_product(context, node) if node.op_type == "Mul" else None


def _as_product(context: Context, node: ir.Node) -> _Choice | None:
    for factor, other in (tuple(node.inputs), tuple(reversed(node.inputs))):
        lowest = context.scalar(other)
        difference = factor.producer() if factor is not None else None
        if lowest is None or lowest > -1e4 or difference is None or difference.op_type != "Sub":
            continue
        one, cast = context.scalar(difference.inputs[0]), difference.inputs[1]
        maker = cast.producer() if cast is not None else None
        if one == 1 and cast is not None and maker is not None and maker.op_type == "Cast":
            source = maker.inputs[0]
            if source is not None and _is_choice(source):
                return _Choice(source, False, lowest)
    return None


def _is_choice(value: ir.Value) -> bool:
    """Whether it holds 0 and 1 alone."""
    maker = value.producer()
    source = maker.inputs[0] if maker is not None and is_op(maker, "Cast") else value
    return source is not None and source.dtype == ir.DataType.BOOL


def _fits(value: ir.Value) -> bool:
    """Whether one mask serves all heads."""
    shape = dims_of(value)
    return shape is not None and len(shape) <= 4 and (len(shape) < 3 or shape[-3] == 1)


def _integer_mask(op: Builder, choice: _Choice, scores: Scores) -> ir.Value:
    """int32 [B,T] or [B,S,T], 1 where a score is kept."""
    shape = dims_of(choice.value) or ()
    full = (1,) * (4 - len(shape)) + tuple(shape)
    value = choice.value
    if choice.inverted:
        value = op.Not(value)
    if full == (scores.batch, 1, 1, scores.keys):
        flat = op.Squeeze(value, [1, 2]) if len(shape) == 4 else value
        # The kernel takes a vector for lengths, and three dimensions for a mask of each query.
        flat = flat if len(shape) in (2, 4) else op.Reshape(flat, [1, -1])
        return op.Cast(flat, to=ir.DataType.INT32)
    wanted = (scores.batch, scores.queries, scores.keys)
    heads = len(shape) >= 3 and shape[-3] == 1
    three = op.Squeeze(value, [len(shape) - 3]) if heads else value
    three = _expanded(op, three, len(shape) - heads, [(full[0], *full[2:])], wanted, scores)
    return op.Cast(three, to=ir.DataType.INT32)


def _full_bias(op: Builder, added: list[ir.Value], scores: Scores) -> ir.Value:
    """The sum, as [B,H,S,T]."""
    total = added[0]
    for value in added[1:]:
        total = op.Add(total, value)
    shapes = [dims_of(value) or () for value in added]
    wanted = (scores.batch, scores.heads, scores.queries, scores.keys)
    rank = max(map(len, shapes))
    return _expanded(op, total, rank, [(1,) * (4 - len(s)) + tuple(s) for s in shapes], wanted, scores)


def _expanded(
    op: Builder, value: ir.Value, rank: int, shapes: list[Shape], wanted: Shape, scores: Scores
) -> ir.Value:
    """The value, which has the sizes of all `shapes` broadcast, with the sizes `wanted`: all dimensions,
    though the first ones be 1."""
    missing = [
        1 if size is not None and any(shape[axis] == size for shape in shapes) else size
        for axis, size in enumerate(wanted)
    ]
    if rank == len(wanted) and all(size == 1 for size in missing):
        return value
    return op.Expand(value, shape_vector(op, missing, scores.likes))
