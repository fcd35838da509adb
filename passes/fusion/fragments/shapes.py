"""Shapes as values: a vector of given dimensions, read from the graph's inputs so that it can be shared."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.patterns import Builder
from fuseline.engine.shapes.dims import dims_of

__all__ = ["shape_vector"]


def shape_vector(op: Builder, wanted: Sequence[int | str | None], likes: Sequence[ir.Value]) -> ir.Value:
    """An int64 vector of the dimensions; symbols are looked up in graph inputs, then in `likes`."""
    sizes = [d for d in wanted if isinstance(d, int)]
    if len(sizes) == len(wanted):
        return op.constant(sizes, "shape")
    parts = [_dimension(op, d, likes) for d in wanted]
    return op.Concat(*parts, axis=0)


def _dimension(op: Builder, dimension: int | str | None, likes: Sequence[ir.Value]) -> ir.Value:
    if isinstance(dimension, int):
        return op.constant([dimension], "dimension")
    for value in (*op.model.graph.inputs, *likes):
        shape = dims_of(value) or ()
        if dimension is not None and dimension in shape:
            axis = shape.index(dimension)
            return op.Shape(value, start=axis, end=axis + 1)
    raise AssertionError(f"the dimension {dimension!r} is in none of the values it was taken from")
