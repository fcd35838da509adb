"""Reductions, positions of extremes, and sums along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from fuseline.tools.campaigns.fuzz.drawing import FLOATS, Drawing, Unfit, Value, allowed_types
from fuseline.tools.campaigns.fuzz.operators.table import draws

__all__ = ["AXES_AS_INPUT", "reduce"]

_REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin") * 2,
    *("ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
)
AXES_AS_INPUT = 18


def reduce(g: Drawing, op: str, x: Value, axes: list[int] | None, keep: bool = True) -> Value:
    """A reduction with its axes in the form that the opset has."""
    attributes: dict[str, Any] = {} if keep and g.maybe(0.5) else {"keepdims": int(keep)}
    since = 13 if op == "ReduceSum" else AXES_AS_INPUT
    if g.opset < since:
        return g.one(op, x, **attributes, **({} if axes is None else {"axes": axes}))
    shape = _reduced(x, axes, keep)
    more = [] if axes is None else [g.ints(*axes)]
    if axes == [] and g.maybe(0.5):
        attributes["noop_with_empty_axes"] = 1
        shape = x.shape
    return g.one(op, x, *more, shapes=[shape], types=[x.dtype], **attributes)


def _reduced(x: Value, axes: list[int] | None, keep: bool) -> tuple[int, ...]:
    gone = {a % x.rank for a in axes} if axes else set(range(x.rank))
    if keep:
        return tuple(1 if i in gone else s for i, s in enumerate(x.shape))
    return tuple(s for i, s in enumerate(x.shape) if i not in gone)


@draws(5)
def reduction(g: Drawing) -> None:
    op = g.choose(_REDUCTIONS)
    x = g.pick(allowed_types(op, g.opset, 0))
    axes = None if g.maybe(0.15) or not x.rank else g.axes(x)
    if axes is not None and g.opset >= AXES_AS_INPUT and g.maybe(0.05):
        axes = []
    reduce(g, op, x, axes, g.maybe(0.6))


@draws(1)
def extreme_position(g: Drawing) -> None:
    op = g.choose(("ArgMax", "ArgMin"))
    x = g.pick(allowed_types(op, g.opset, 0), (1, 4))
    g.one(op, x, axis=g.chance.randrange(x.rank), keepdims=g.choose((0, 1)))


@draws(1)
def cumulative_sum(g: Drawing) -> None:
    x = g.pick((*FLOATS, TensorProto.INT32, TensorProto.INT64), (1, 4))
    axis = g.constant(np.array(g.axis(x), g.choose((np.int64, np.int32))))
    g.one("CumSum", x, axis, exclusive=g.choose((0, 0, 1)), reverse=g.choose((0, 0, 1)))


@draws(2)
def softmax(g: Drawing) -> None:
    op = g.choose(("Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    x = g.pick(FLOATS, (1, 4))
    attributes = {} if g.maybe(0.3) else {"axis": g.axis(x) if g.opset >= 11 else g.chance.randrange(x.rank)}
    if g.opset < 13 and not attributes and x.rank < 2:
        raise Unfit("the default axis is 1")
    g.one(op, x, **attributes)


@draws(0.7)
def top(g: Drawing) -> None:
    x = g.pick((*FLOATS, TensorProto.INT64, TensorProto.INT32), (1, 4), lambda v: min(v.shape) > 0)
    axis = g.chance.randrange(x.rank)
    count = min(x.shape[axis], g.choose((1, 2)))
    shape = tuple(count if i == axis else s for i, s in enumerate(x.shape))
    told: dict[str, Any] = {"shapes": [shape, shape], "types": [x.dtype, TensorProto.INT64]}
    if g.opset < 10:
        g.add("TopK", [x], 2, **told, k=count, axis=axis)
        return
    largest = {} if g.opset < 11 else {"largest": g.choose((0, 1))}
    g.add("TopK", [x, g.ints(count)], 2, **told, axis=axis, **largest)


@draws(0.5)
def norm(g: Drawing) -> None:
    x = g.pick(FLOATS, (1, 4))
    g.one("LpNormalization", x, axis=g.chance.randrange(x.rank), p=g.choose((1, 2)))


@draws(0.4)
def determinant(g: Drawing) -> None:
    x = g.pick(FLOATS, (2, 3), lambda v: v.shape[-1] == v.shape[-2] and v.shape[-1] > 0)
    g.one("Det", x)
