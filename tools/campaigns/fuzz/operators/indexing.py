"""Operators that read and write by position."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from fuseline.tools.campaigns.fuzz.drawing import FLOATS, INTEGERS, Drawing, Unfit, Value
from fuseline.tools.campaigns.fuzz.operators.table import draws

__all__: list[str] = []

_ANY = (*FLOATS, *INTEGERS, TensorProto.BOOL)


def _index(g: Drawing, shape: tuple[int, ...], bound: int) -> Value:
    """Positions below `bound`: a constant, sometimes counted from the end, or an input."""
    if bound < 1:
        raise Unfit("nothing to point at")
    if g.maybe(0.4):
        return g.fresh(TensorProto.INT64, shape, "index", min(bound, 2))
    draw = np.random.default_rng(g.chance.getrandbits(32))
    low = -bound if g.opset >= 11 and g.maybe(0.4) else 0
    dtype = g.choose((np.int64, np.int64, np.int32))
    return g.constant(np.asarray(draw.integers(low, bound, shape)).astype(dtype))


@draws(3.5)
def gather(g: Drawing) -> None:
    x = g.pick((*_ANY, TensorProto.STRING), (1, 4))
    axis = g.axis(x) if g.opset >= 11 else g.chance.randrange(x.rank)
    shape = g.choose(((), (), (1,), (2,), (2, 2), (0,)))
    g.one("Gather", x, _index(g, shape, x.shape[axis]), axis=axis)


@draws(1)
def gather_elements(g: Drawing) -> None:
    x = g.pick(_ANY, (1, 3), lambda v: min(v.shape) > 0)
    axis = g.axis(x)
    shape = tuple(2 if i == axis % x.rank else s for i, s in enumerate(x.shape))
    g.one("GatherElements", x, _index(g, shape, x.shape[axis]), axis=axis)


@draws(1)
def gather_points(g: Drawing) -> None:
    x = g.pick(_ANY, (1, 3), lambda v: min(v.shape) > 0)
    depth = g.chance.randint(1, x.rank)
    draw = np.random.default_rng(g.chance.getrandbits(32))
    points = np.stack([draw.integers(0, s, (2,)) for s in x.shape[:depth]], -1).astype(np.int64)
    g.one("GatherND", x, g.constant(points))


@draws(1)
def scatter_elements(g: Drawing) -> None:
    x = g.pick((*FLOATS, TensorProto.INT64), (1, 3), lambda v: min(v.shape) > 0)
    axis = g.axis(x)
    shape = tuple(1 if i == axis % x.rank else s for i, s in enumerate(x.shape))
    more: dict[str, Any] = {"reduction": g.choose(("none", "add"))} if g.opset >= 16 else {}
    g.one("ScatterElements", x, _index(g, shape, x.shape[axis]), g.fresh(x.dtype, shape), axis=axis, **more)


@draws(1)
def scatter_points(g: Drawing) -> None:
    x = g.pick((*FLOATS, TensorProto.INT64), (1, 3), lambda v: min(v.shape) > 0)
    points = np.array([[g.chance.randrange(x.shape[0])]], np.int64)
    g.one("ScatterND", x, g.constant(points), g.fresh(x.dtype, (1, *x.shape[1:])))


@draws(1)
def one_hot(g: Drawing) -> None:
    x = g.pick((TensorProto.INT64, TensorProto.INT32), (0, 3))
    depth = g.constant(np.array(g.choose((2, 4)), np.int64))
    values = g.constant(np.array([0, 1], np.float32))
    shape = (*x.shape, int(depth.content))  # type: ignore[arg-type]
    g.one("OneHot", x, depth, values, shapes=[shape], types=[TensorProto.FLOAT], axis=-1)


@draws(1)
def arange(g: Drawing) -> None:
    """Range, with constant bounds or up to the size of something."""
    dtype = g.choose((np.int64, np.int64, np.int32, np.float32))
    start, step = np.array(0, dtype), np.array(1, dtype)
    if dtype == np.int64 and g.maybe(0.6):
        x = g.pick((*FLOATS, *INTEGERS), (1, 4))
        axis = g.chance.randrange(x.rank)
        end = g.one("Gather", g.one("Shape", x), g.constant(np.array(axis, np.int64)), axis=0)
        g.one("Range", g.constant(start), end, g.constant(step), shapes=[(x.shape[axis],)], types=[end.dtype])
        return
    g.one("Range", g.constant(start), g.constant(np.array(4, dtype)), g.constant(step))


@draws(0.8)
def compress(g: Drawing) -> None:
    x = g.pick(_ANY, (1, 3), lambda v: min(v.shape) > 1)
    axis = g.chance.randrange(x.rank)
    keep = np.array([True, False])
    shape = tuple(1 if i == axis else s for i, s in enumerate(x.shape))
    g.one("Compress", x, g.constant(keep), axis=axis, shapes=[shape], types=[x.dtype])


@draws(0.6)
def data_dependent(g: Drawing) -> None:
    """NonZero or Unique of a constant or an input, brought to a known shape by a sum."""
    x = g.pick((*FLOATS, TensorProto.INT64), (1, 3), lambda v: min(v.shape) > 0)
    if g.maybe(0.5):
        found = g.add("NonZero", [x], shapes=[(x.rank, 1)], types=[TensorProto.INT64])[0]
    else:
        found = g.add("Unique", [x], shapes=[(1,)], types=[x.dtype])[0]
    g.values.remove(found)
    if found.dtype not in (*FLOATS, *INTEGERS):
        return
    g.one("ReduceSum", found, shapes=[()], types=[found.dtype], keepdims=0)


@draws(0.5)
def reverse(g: Drawing) -> None:
    x = g.pick(FLOATS, (2, 4), lambda v: min(v.shape) > 0)
    lengths = g.constant(np.full((x.shape[1],), min(2, x.shape[0]), np.int64))
    g.one("ReverseSequence", x, lengths, batch_axis=1, time_axis=0)
