"""Placeholders: names that exporters give to every size they do not know."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from fuseline.engine.shapes.dims import is_placeholder

__all__ = ["forget_placeholders"]


def forget_placeholders(model: ir.Model) -> None:
    """Leave a size open where it has such a name: runtimes take two of one name for equal, which they need
    not be."""
    for graph in model.graphs():
        for value in _values(graph):
            shape = value.shape
            if shape is not None and any(_is_placeholder(dim) for dim in shape):
                value.shape = ir.Shape([None if _is_placeholder(dim) else dim for dim in shape])


def _is_placeholder(dim: int | ir.SymbolicDim) -> bool:
    return isinstance(dim, ir.SymbolicDim) and is_placeholder(dim.value)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs
