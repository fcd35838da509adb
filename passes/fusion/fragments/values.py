"""What checks ask about values: shapes, ranks, axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.patterns import Context
from fuseline.engine.shapes.dims import dims_of, equal

__all__ = [
    "Array",
    "broadcasts_last",
    "content",
    "fits_attribute",
    "is_last_axis",
    "is_vector",
    "last_dim",
    "rank",
    "same_shape",
]

Array = npt.NDArray[Any]


def fits_attribute(number: float) -> bool:
    """Whether a float attribute, which has 32 bits, holds the number to its last digits."""
    limits = np.finfo(np.float32)
    return number == 0 or float(limits.tiny) <= abs(number) <= float(limits.max)


def rank(value: ir.Value | None) -> int | None:
    shape = dims_of(value)
    return None if shape is None else len(shape)


def last_dim(value: ir.Value | None) -> int | None:
    shape = dims_of(value)
    return shape[-1] if shape and isinstance(shape[-1], int) else None


def same_shape(one: ir.Value | None, other: ir.Value | None) -> bool:
    """Whether both have, for certain, the same shape."""
    return equal(dims_of(one), dims_of(other))


def is_vector(value: ir.Value | None, length: int | None = None) -> bool:
    shape = dims_of(value)
    return shape is not None and len(shape) == 1 and (length is None or shape[0] == length)


def broadcasts_last(value: ir.Value | None, onto: ir.Value | None) -> bool:
    """Whether `value` is, for certain, a vector as long as the last axis of `onto`."""
    length, shape = dims_of(value), dims_of(onto)
    return length is not None and len(length) == 1 and shape is not None and equal(length, shape[-1:])


def is_last_axis(context: Context, axes: ir.Value, x: ir.Value) -> str | None:
    """None if the axes are just the last one of x; otherwise what they are."""
    found = context.constant(axes) if isinstance(axes, ir.Value) else axes
    listed = [] if found is None else [int(a) for a in np.reshape(found, -1)]
    known = rank(x)
    if listed == [-1] or (known is not None and listed == [known - 1]):
        return None
    return f"the axes are {listed or 'not constant'}, not the last one"


def content(value: ir.Value) -> Array:
    """The elements of a weight that a check found to be constant."""
    assert value.const_value is not None
    return value.const_value.numpy()
