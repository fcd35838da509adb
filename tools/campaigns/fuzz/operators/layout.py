"""Operators that move elements without computing on them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto

from fuseline.tools.campaigns.fuzz.drawing import (
    FLOATS,
    INTEGERS,
    SYMBOLS,
    Drawing,
    Shape,
    Unfit,
    Value,
    allowed_types,
)
from fuseline.tools.campaigns.fuzz.operators.table import draws

__all__ = ["reshape_to", "shape_vector", "squeeze", "transpose", "unsqueeze"]

_ANY = (*FLOATS, *INTEGERS, TensorProto.BOOL, TensorProto.UINT8, TensorProto.STRING)


def shape_vector(g: Drawing, x: Value, axis: int) -> Value:
    """The size of one axis as a vector of one, computed from x in one of the ways exporters use."""
    style = g.chance.randrange(4)
    if style == 0 and g.opset >= 15:
        return g.one("Shape", x, start=axis, end=axis + 1)
    whole = g.one("Shape", x)
    if style == 1 and g.opset >= 10:
        return g.one("Slice", whole, g.ints(axis), g.ints(axis + 1), g.ints(0), shapes=[(1,)])
    if style == 2:
        return g.one("Gather", whole, g.ints(axis), axis=0)
    scalar = g.one("Gather", whole, g.constant(np.array(axis, np.int64)), axis=0)
    return unsqueeze(g, scalar, [0])


def unsqueeze(g: Drawing, x: Value, axes: list[int]) -> Value:
    if g.opset < 13:
        if min(axes, default=0) < 0 and g.opset < 11:
            raise Unfit("negative axes came later")
        return g.one("Unsqueeze", x, axes=axes)
    return g.one("Unsqueeze", x, g.ints(*axes))


def squeeze(g: Drawing, x: Value, axes: list[int] | None) -> Value:
    if g.opset < 13:
        if min(axes or [0]) < 0 and g.opset < 11:
            raise Unfit("negative axes came later")
        return g.one("Squeeze", x, **({"axes": axes} if axes is not None else {}))
    return g.one("Squeeze", x, *([] if axes is None else [g.ints(*axes)]))


def transpose(g: Drawing, x: Value, perm: list[int] | None = None) -> Value:
    return g.one("Transpose", x, **({} if perm is None else {"perm": perm}))


def reshape_to(g: Drawing, x: Value, target: Shape) -> Value:
    """Reshape to the shape: written out, with 0 and -1 in it, or computed from x's own sizes."""
    written: list[int] = list(target)
    free = [i for i, s in enumerate(target) if s in SYMBOLS.values()]
    if 0 not in target and g.maybe(0.6):
        position = free[0] if free else g.chance.randrange(max(len(target), 1))
        if written:
            written[position] = -1
    for i in range(min(x.rank, len(target))):
        if x.shape[i] == target[i] and written[i] != -1 and g.maybe(0.8 if i in free else 0.3):
            written[i] = 0
    pinned = [i for i in free if written[i] > 0]
    if not pinned or g.maybe(0.3):
        return g.one("Reshape", x, g.ints(*written), shapes=[target], types=[x.dtype])
    parts: list[Value] = []
    for i, s in enumerate(written):
        source = next((j for j, size in enumerate(x.shape) if size == target[i]), None)
        known = i in pinned and source is not None
        parts.append(shape_vector(g, x, source) if known and source is not None else g.ints(s))
    vector = g.one("Concat", *parts, axis=0)
    return g.one("Reshape", x, vector, shapes=[target], types=[x.dtype])


def _targets(g: Drawing, shape: Shape) -> Shape:
    """Another shape of as many elements, built by merging and splitting neighbours."""
    dims = list(shape)
    for _ in range(g.chance.randint(0, 2)):
        if len(dims) > 1 and g.maybe(0.5):
            i = g.chance.randrange(len(dims) - 1)
            dims[i : i + 2] = [dims[i] * dims[i + 1]]
        elif dims and g.maybe(0.5):
            i = g.chance.randrange(len(dims))
            divisors = [d for d in (1, 2, 4) if dims[i] and dims[i] % d == 0]
            if divisors:
                d = g.choose(divisors)
                dims[i : i + 1] = [d, dims[i] // d]
        elif len(dims) < 4:
            dims.insert(g.chance.randint(0, len(dims)), 1)
    return tuple(dims)


@draws(5)
def reshape(g: Drawing) -> None:
    x = g.pick(_ANY)
    reshape_to(g, x, _targets(g, x.shape))


@draws(1)
def own_shape(g: Drawing) -> None:
    """Reshape or Expand to the Shape of the same or another value."""
    x = g.pick((*FLOATS, *INTEGERS))
    others = [v for v in g.visible() if math.prod(v.shape) == math.prod(x.shape)]
    like = g.choose(others or [x])
    target = g.one("Shape", like)
    if g.maybe(0.7):
        g.one("Reshape", x, target, shapes=[like.shape], types=[x.dtype])
        return
    g.one("Expand", x, g.one("Shape", x), shapes=[x.shape], types=[x.dtype])


@draws(4)
def permute(g: Drawing) -> None:
    x = g.pick(_ANY, (0, 4))
    if g.maybe(0.15):
        transpose(g, x)
        return
    perm = list(range(x.rank))
    g.chance.shuffle(perm)
    if g.maybe(0.15):
        perm.sort()
    transpose(g, x, perm)


@draws(3)
def expand_rank(g: Drawing) -> None:
    x = g.pick(_ANY, (0, 3))
    axes = sorted(g.chance.sample(range(x.rank + 1), 1 if g.maybe(0.8) or not x.rank else 2))
    unsqueeze(g, x, [a - x.rank - len(axes) for a in axes] if g.maybe(0.2) else axes)


@draws(2.5)
def drop_rank(g: Drawing) -> None:
    x = g.pick(_ANY, (1, 4), lambda v: 1 in v.shape)
    ones = [i for i, s in enumerate(x.shape) if s == 1]
    axes = None if g.maybe(0.15) and len(ones) == x.shape.count(1) else [g.choose(ones)]
    squeeze(g, x, axes)


@draws(1.5)
def flatten(g: Drawing) -> None:
    x = g.pick(allowed_types("Flatten", g.opset, 0), (0, 4))
    low = -x.rank if g.opset >= 11 else 0
    g.one("Flatten", x, axis=g.chance.randint(low, x.rank))


@draws(2)
def expand(g: Drawing) -> None:
    x = g.pick((*FLOATS, *INTEGERS, TensorProto.BOOL), (0, 4))
    target = [g.size() if s == 1 and g.maybe(0.6) else s for s in x.shape]
    if len(target) < 4 and g.maybe(0.3):
        target.insert(0, g.size())
    written = [
        1 if s == w and s != 1 and g.maybe(0.4) else w
        for s, w in zip(x.shape, target[-x.rank :], strict=False)
    ]
    written = [*target[: len(target) - x.rank], *written] if x.rank else target
    if 0 in x.shape or 0 in target:
        raise Unfit("expanding nothing")
    g.one("Expand", x, g.ints(*written), shapes=[tuple(target)], types=[x.dtype])


@draws(1)
def tile(g: Drawing) -> None:
    x = g.pick((*FLOATS, *INTEGERS), (1, 4))
    g.one("Tile", x, g.ints(*(g.choose((1, 1, 2)) for _ in x.shape)))


@draws(4)
def slices(g: Drawing) -> None:
    x = g.pick((*FLOATS, *INTEGERS, TensorProto.BOOL), (1, 4))
    axes = g.axes(x)[: g.chance.randint(1, 2)]
    if g.opset < 10:
        axes = [a % x.rank for a in axes]
        starts, ends = [g.choose((0, 1, -2)) for _ in axes], [g.choose((2, -1, 1 << 60)) for _ in axes]
        g.one("Slice", x, axes=axes, starts=starts, ends=ends)
        return
    starts, ends, steps = [], [], []
    for _ in axes:
        step = g.choose((1, 1, 1, 1, 2, -1, -2))
        steps.append(step)
        edge = ((1 << 62), 100, 7) if step < 0 else (0, 0, 1, -2, -100)
        starts.append(g.choose((*edge, -1) if step < 0 else edge))
        ends.append(g.choose((-(1 << 62), -100, 0) if step < 0 else (1 << 62, 2, 4, -1, 100)))
    parts: list[Value | None] = [g.ints(*starts), g.ints(*ends), g.ints(*axes), g.ints(*steps)]
    if set(steps) == {1} and g.maybe(0.5):
        parts.pop()
    g.one("Slice", x, *parts)


@draws(0.4)
def slice_nothing(g: Drawing) -> None:
    if g.opset < 10:
        raise Unfit("inputs came later")
    x = g.pick((*FLOATS, *INTEGERS), (1, 3))
    g.one("Slice", x, g.ints(), g.ints(), g.ints(), shapes=[x.shape], types=[x.dtype])


@draws(2.5)
def split(g: Drawing) -> None:
    x = g.pick((*FLOATS, *INTEGERS), (1, 4))
    axis = g.axis(x) if g.opset >= 11 else g.chance.randrange(x.rank)
    size = x.shape[axis]
    if size < 2:
        raise Unfit("nothing to split")
    first = g.chance.randint(0 if g.maybe(0.1) else 1, size - 1)
    equal = size % 2 == 0 and g.maybe(0.6)
    sizes = [size // 2] * 2 if equal else [first, size - first]
    if g.opset < 13:
        given: dict[str, Any] = {} if equal and g.maybe(0.5) else {"split": sizes}
        g.add("Split", [x], 2, axis=axis, **given)
        return
    if equal and g.maybe(0.6):
        given = {"num_outputs": 2} if g.opset >= 18 else {}
        g.add("Split", [x], 2, axis=axis, **given)
        return
    shapes = [tuple(s if i == axis % x.rank else d for i, d in enumerate(x.shape)) for s in sizes]
    lengths = g.ints(*sizes) if g.maybe(0.7) else g.one("Add", g.ints(*sizes), g.ints(0, 0))
    g.add("Split", [x, lengths], 2, shapes, [x.dtype] * 2, axis=axis)


@draws(4)
def concat(g: Drawing) -> None:
    x = g.pick(_ANY, (1, 4))
    axis = g.axis(x) if g.opset >= 11 else g.chance.randrange(x.rank)
    parts = [x]
    for _ in range(g.chance.randint(0, 2)):
        fitting = [
            v
            for v in g.visible()
            if v.dtype == x.dtype
            and v.rank == x.rank
            and all(
                a == b for i, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if i != axis % x.rank
            )
        ]
        other = g.choose(fitting) if fitting and g.maybe(0.7) else None
        if other is None:
            shape = tuple(g.choose((0, 1, 2)) if i == axis % x.rank else s for i, s in enumerate(x.shape))
            other = g.fresh(x.dtype, shape)
        parts.append(other)
    g.chance.shuffle(parts)
    g.one("Concat", *parts, axis=axis)


@draws(1.5)
def pad(g: Drawing) -> None:
    x = g.pick(FLOATS, (1, 4))
    mode = g.choose(("constant", "constant", "edge", "reflect"))
    if mode != "constant" and min(x.shape) < 3:
        raise Unfit("too small to mirror")
    amounts = [g.choose((0, 0, 1, 2)) for _ in range(2 * x.rank)]
    if mode != "constant":
        # Of what is shorter than its margin the runtime mirrors whatever lies beside it in memory.
        amounts = [0 if size in SYMBOLS.values() else a for a, size in zip(amounts, x.shape * 2, strict=True)]
    if mode == "constant" and g.maybe(0.2):
        amounts = [0] * len(amounts)
    if g.opset < 11:
        g.one("Pad", x, mode=mode, pads=amounts)
        return
    more: list[Any] = [g.number(0.5, x)] if mode == "constant" and g.maybe(0.5) else []
    g.one("Pad", x, g.ints(*amounts), *more, mode=mode)


@draws(0.8)
def space(g: Drawing) -> None:
    if g.maybe(0.5):
        x = g.pick(FLOATS, (4, 4), lambda v: v.shape[1] % 4 == 0)
        mode = {"mode": g.choose(("DCR", "CRD"))} if g.opset >= 11 else {}
        g.one("DepthToSpace", x, blocksize=2, **mode)
        return
    x = g.pick(FLOATS, (4, 4), lambda v: v.shape[2] % 2 == 0 and v.shape[3] % 2 == 0)
    g.one("SpaceToDepth", x, blocksize=2)


@draws(0.7)
def triangle(g: Drawing) -> None:
    x = g.pick((*FLOATS, TensorProto.INT64, TensorProto.BOOL), (2, 4))
    more = [g.constant(np.array(g.choose((-1, 0, 1, 9)), np.int64))] if g.maybe(0.5) else []
    g.one("Trilu", x, *more, upper=g.choose((0, 1)))


@draws(3)
def sizes(g: Drawing) -> None:
    x = g.pick((*FLOATS, *INTEGERS))
    op = g.choose(("Shape", "Shape", "Size"))
    if op == "Shape" and g.opset >= 15 and x.rank and g.maybe(0.4):
        start = g.chance.randint(-x.rank, x.rank)
        g.one(op, x, start=start, **({"end": g.chance.randint(-x.rank, x.rank)} if g.maybe(0.5) else {}))
        return
    g.one(op, x)


@draws(1)
def filled(g: Drawing) -> None:
    """ConstantOfShape of a shape that is constant or computed."""
    x = g.pick((*FLOATS, *INTEGERS), (0, 3))
    content = g.choose((np.array([1.5], np.float32), np.array([2], np.int64), np.array([True]), None))
    target = g.one("Shape", x) if g.maybe(0.6) else g.ints(*x.shape)
    from onnx import numpy_helper

    attributes = {} if content is None else {"value": numpy_helper.from_array(content)}
    g.one("ConstantOfShape", target, shapes=[x.shape], **attributes, types=[_filled_type(content)])


def _filled_type(content: Any) -> int:
    from onnx import helper

    return TensorProto.FLOAT if content is None else helper.np_dtype_to_tensor_dtype(content.dtype)


@draws(0.6)
def eye(g: Drawing) -> None:
    x = g.pick((*FLOATS, *INTEGERS), (2, 2))
    g.one("EyeLike", x, **({"k": 1} if g.maybe(0.3) else {}), dtype=g.choose((1, 7)))
