"""Operators in numpy, for constant folding: those that exporters leave behind by the hundred.

Records name them as `evaluate`. Each returns the output, a list of outputs, or None to decline a case that is
left to ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.nodes import attribute
from fuseline.engine.shapes.dims import is_contested, taken

__all__ = [
    "Made",
    "Operands",
    "binary",
    "cast",
    "concat",
    "constant_of_shape",
    "div",
    "expand",
    "flatten",
    "gather",
    "identity",
    "is_numpys",
    "range_",
    "reduction",
    "reshape",
    "shape",
    "size",
    "slice_",
    "split",
    "squeeze",
    "transpose",
    "unary",
    "unsqueeze",
    "variadic",
    "where",
]

Array = npt.NDArray[Any]
Made = Array | list[Array] | None


def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of numpy's own types of numbers, whose arithmetic is that of ONNX.

    The kind alone does not tell: float8_e5m2 calls itself a float, and its casts know nothing of saturation.
    """
    return dtype.kind in "fiub" and issubclass(dtype.type, (np.number, np.bool_))


@dataclass(frozen=True)
class Operands:
    """A node with the contents of its inputs."""

    node: ir.Node
    inputs: Sequence[Array | None]
    opset: int

    def __getitem__(self, index: int) -> Array:
        array = self.inputs[index]
        assert array is not None
        return array

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def integers(self, index: int, attribute: str) -> list[int] | None:
        """Integers given as an input or, in older operator versions, as an attribute."""
        if self.has(index):
            return [int(i) for i in self[index].reshape(-1)]
        given = self.node.attributes.get_ints(attribute)
        return list(given) if given is not None else None

    def attribute(self, name: str, default: int) -> int:
        return self.node.attributes.get_int(name, default)


def identity(o: Operands) -> Made:
    return o[0]


def size(o: Operands) -> Made:
    return np.asarray(o[0].size, np.int64)


def binary(function: Callable[[Array, Array], Array]) -> Callable[[Operands], Made]:
    def operator(o: Operands) -> Made:
        return np.asarray(function(o[0], o[1])) if o.opset >= 7 else None

    return operator


def unary(function: Callable[[Array], Array]) -> Callable[[Operands], Made]:
    def operator(o: Operands) -> Made:
        return np.asarray(function(o[0]), dtype=o[0].dtype)

    return operator


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    # Integers round towards zero. A zero divisor is undefined; keep it a node that fails at its place.
    quotient = np.floor_divide(a, b)
    inexact = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return np.asarray(quotient + inexact, dtype=a.dtype)


def div(o: Operands) -> Made:
    if o.opset < 7 or (o[1].dtype.kind != "f" and not o[1].all()):
        return None
    return _divide(o[0], o[1])


def cast(o: Operands) -> Made:
    dtype = ir.DataType(o.attribute("to", 1))
    if dtype == ir.DataType.STRING or not is_numpys(o[0].dtype):
        return None
    target = np.dtype(dtype.numpy())
    if not is_numpys(target) or (o[0].dtype.kind == "f" and target.kind in "iu" and not _fits(o[0], target)):
        return None
    return o[0].astype(target)


def _fits(array: Array, target: np.dtype[Any]) -> bool:
    """Whether every element has a value in an integer type; conversions of others differ by machine."""
    limits = np.iinfo(target)
    return bool(
        np.isfinite(array).all() and (array >= limits.min).all() and (array < float(limits.max)).all()
    )


def reshape(o: Operands) -> Made:
    target = o.integers(1, "shape")
    if target is None:
        return None
    if not o.attribute("allowzero", 0):
        if any(d == 0 and i >= o[0].ndim for i, d in enumerate(target)):
            return None
        target = [o[0].shape[i] if d == 0 else d for i, d in enumerate(target)]
    return o[0].reshape(target) if -1 not in target or o[0].size else None


def transpose(o: Operands) -> Made:
    # Not ascontiguousarray, which turns a scalar into a vector of one.
    return np.asarray(o[0].transpose(o.node.attributes.get_ints("perm")), order="C")


def squeeze(o: Operands) -> Made:
    axes = o.integers(1, "axes")
    return o[0].squeeze(tuple(axes) if axes else None)


def unsqueeze(o: Operands) -> Made:
    axes = o.integers(1, "axes")
    return np.expand_dims(o[0], tuple(axes)) if axes is not None else None


def flatten(o: Operands) -> Made:
    axis = o.attribute("axis", 1)
    axis = axis + o[0].ndim if axis < 0 else axis
    return o[0].reshape(int(np.prod(o[0].shape[:axis])), -1) if o[0].size else None


def concat(o: Operands) -> Made:
    axis = o.node.attributes.get_int("axis")
    return np.concatenate([o[i] for i in range(len(o.inputs))], axis=axis) if axis is not None else None


def gather(o: Operands) -> Made:
    axis, indices = o.attribute("axis", 0), o[1]
    if o[0].ndim == 0 or (indices.size and not _in_range(indices, o[0].shape[axis])):
        return None
    return np.asarray(np.take(o[0], indices, axis=axis))


def _in_range(indices: Array, size: int) -> bool:
    return bool(indices.min() >= -size and indices.max() < size)


def slice_(o: Operands) -> Made:
    starts, ends = o.integers(1, "starts"), o.integers(2, "ends")
    if starts is None or ends is None:
        return None
    axes = o.integers(3, "axes") or list(range(len(starts)))
    steps = o.integers(4, "steps") or [1] * len(starts)
    index: list[slice] = [slice(None)] * o[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not step or is_contested(end, step):
            return None
        cut = taken(o[0].shape[axis], start, end, step)
        # A Python slice counts a stop of −1 from the end.
        index[axis] = slice(cut.start, cut.stop if cut.stop >= 0 else None, step) if cut else slice(0, 0)
    return np.array(o[0][tuple(index)], order="C")


def split(o: Operands) -> Made:
    axis, count = o.attribute("axis", 0), len(o.node.outputs)
    size = o[0].shape[axis]
    sizes = o.integers(1, "split") or ([size // count] * count if size % count == 0 else None)
    if sizes is None:
        return None
    return [np.ascontiguousarray(p) for p in np.split(o[0], np.cumsum(sizes)[:-1], axis=axis)]


def expand(o: Operands) -> Made:
    return np.broadcast_to(o[0], np.broadcast_shapes(o[0].shape, tuple(o[1])))


def constant_of_shape(o: Operands) -> Made:
    value = attribute(o.node, "value", None)
    element = value.numpy().reshape(()) if value is not None else np.zeros((), np.float32)
    return np.broadcast_to(element, tuple(int(i) for i in o[0]))


def range_(o: Operands) -> Made:
    start, limit, step = (o[i].reshape(()) for i in range(3))
    if o[0].dtype.kind != "i" or not step:
        return None
    return np.arange(int(start), int(limit), int(step), dtype=o[0].dtype)


def shape(o: Operands) -> Made:
    shape = o[0].shape
    return np.array(shape[o.attribute("start", 0) : o.attribute("end", len(shape))], np.int64)


def reduction(function: Callable[..., Any]) -> Callable[[Operands], Made]:
    def operator(o: Operands) -> Made:
        if o[0].dtype.kind not in "fi" or o.attribute("noop_with_empty_axes", 0):
            return None
        axes = o.integers(1, "axes")
        keep = bool(o.attribute("keepdims", 1))
        return np.asarray(function(o[0], axis=tuple(axes) if axes else None, keepdims=keep), dtype=o[0].dtype)

    return operator


def where(o: Operands) -> Made:
    return np.where(o[0], o[1], o[2])


def variadic(function: Callable[[Array, Array], Array]) -> Callable[[Operands], Made]:
    def operator(o: Operands) -> Made:
        made = o[0]
        for index in range(1, len(o.inputs)):
            made = function(made, o[index])
        return np.asarray(made) if o.opset >= 8 else None

    return operator
