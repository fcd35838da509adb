"""The table of fragments, and the small deviations that all of them share."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuseline.tools.campaigns.fuzz.drawing import Drawing, Shape, Value, numpy_type, random_content
from fuseline.tools.campaigns.fuzz.operators.table import Draw

__all__ = ["add_either_way", "fragment", "fragments", "hidden_states", "number", "times", "vary", "weight"]

fragments: list[Draw] = []
_DEVIATION = 0.1


def fragment(function: Draw) -> Draw:
    fragments.append(function)
    return function


def vary(g: Drawing, usual: Any, *others: Any) -> Any:
    """Nearly always what every exporter writes; now and then something a fusion must look at twice."""
    return g.choose(others) if g.maybe(_DEVIATION) else usual


def number(g: Drawing, x: Value, content: float) -> Value:
    """A constant of one element, mostly of rank 0."""
    shape = vary(g, (), (1,), (1, 1), (1, 1, 1, 1))
    content = vary(g, content, content * 1.01, 1.0, 0.0, -content)
    return g.constant(np.full(shape, content, numpy_type(x.dtype)))


def weight(g: Drawing, x: Value, shape: Shape) -> Value:
    """A weight: a constant, now and then an input, or of an odd shape that still broadcasts."""
    if len(shape) == 1:
        shape = vary(g, shape, (1,), (1, *shape), (1, 1, *shape), ())
    if g.maybe(0.1):
        return g.input(x.dtype, shape)
    return g.constant(random_content(g.chance, x.dtype, shape))


def hidden_states(g: Drawing, width: int | None = None) -> Value:
    """[batch, length, width] mostly; other ranks now and then."""
    last = width or g.choose((2, 4, 8))
    fitting = [v for v in g.values if v.dtype == g.main_float and v.rank in (2, 3) and v.shape[-1] == last]
    if fitting and g.maybe(0.6):
        return g.chance.choice(fitting[-2:])
    shape = vary(
        g, (3, 5, last), (5, last), (last,), (1, 5, last), (3, 1, last), (3, 2, 5, last), (2, 4, last)
    )
    return g.input(g.main_float, shape)


def add_either_way(g: Drawing, a: Value, b: Value, op: str = "Add") -> Value:
    return g.one(op, *((a, b) if g.maybe(0.5) else (b, a)))


def times(g: Drawing, a: Value, b: Value) -> Value:
    return add_either_way(g, a, b, "Mul")
