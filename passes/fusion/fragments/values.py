"""What checks ask about values: shapes, ranks, axes."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import onnx_ir as ir

from fuseline.engine.patterns import Context

__all__ = ["broadcasts_last", "dims", "is_last_axis", "is_vector", "last_dim", "rank", "same_shape"]

Dim = int | str


def dims(value: ir.Value | None) -> tuple[Dim | None, ...] | None:
    """The dimensions: numbers, symbols, None where unknown; None if even the rank is unknown."""
    if value is None or value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else _simplified(d.value) for d in value.shape)


@functools.cache
def _simplified(symbol: str | None) -> str | None:
    """Torch writes the length of a flattened and restored mask as ((length*batch)//batch)."""
    found = re.fullmatch(r"\(\((\w+)\*(\w+)\)//(\w+)\)", symbol or "")
    if found is None or found[3] not in (found[1], found[2]):
        return symbol
    return found[1] if found[3] == found[2] else found[2]


def rank(value: ir.Value | None) -> int | None:
    shape = dims(value)
    return None if shape is None else len(shape)


def last_dim(value: ir.Value | None) -> int | None:
    shape = dims(value)
    return shape[-1] if shape and isinstance(shape[-1], int) else None


def same_shape(one: ir.Value | None, other: ir.Value | None) -> bool:
    """Whether both have, for certain, the same shape."""
    first, second = dims(one), dims(other)
    return first is not None and first == second and None not in first


def is_vector(value: ir.Value | None, length: int | None = None) -> bool:
    shape = dims(value)
    return shape is not None and len(shape) == 1 and (length is None or shape[0] == length)


def broadcasts_last(value: ir.Value | None, onto: ir.Value | None) -> bool:
    """Whether `value` is a vector along the last axis of `onto`."""
    return is_vector(value) and last_dim(value) is not None and last_dim(onto) in (None, last_dim(value))


def is_last_axis(context: Context, axes: Any, x: ir.Value) -> str | None:
    """None if the axes are just the last one of x; otherwise what they are."""
    found = context.constant(axes) if isinstance(axes, ir.Value) else axes
    listed = [] if found is None else [int(a) for a in np.reshape(found, -1)]
    known = rank(x)
    if listed == [-1] or (known is not None and listed == [known - 1]):
        return None
    return f"the axes are {listed or 'not constant'}, not the last one"
