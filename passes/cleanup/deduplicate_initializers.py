"""The pass `deduplicate-initializers`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.constants import is_variable
from fuseline.engine.model import Model
from fuseline.engine.nodes import subgraphs
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["DeduplicateInitializers"]

Array = npt.NDArray[Any]
_Table = dict[Hashable, list[ir.Value]]
_SAMPLES = 16
_PIECE = 1 << 24


class DeduplicateInitializers(Pass):
    """initializers of equal content → one

    Never a trainable parameter: two that happen to be equal now need not stay so. Contents are compared in
    full only if type, shape and a few elements agree, so large weights cost little.
    """

    name = "deduplicate-initializers"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        _deduplicate(model, model.graph, (), rewriter)
        return rewriter.changes


def _deduplicate(model: Model, graph: ir.Graph, outer: tuple[_Table, ...], rewriter: Rewriter) -> None:
    """Initializers of subgraphs may become ones of the graphs around them, not the other way round."""
    table: _Table = {}
    scopes = (*outer, table)
    for value in list(graph.initializers.values()):
        if not _may_merge(model, value):
            continue
        key = _key(value)
        same = next((v for t in scopes for v in t.get(key, ()) if _same_content(v, value)), None)
        if same is None:
            table.setdefault(key, []).append(value)
        elif rewriter.permit(value.name or "", f"same content as {same.name}"):
            value.replace_all_uses_with(same)
            del graph.initializers[value.name or ""]
            if model.parameters.holds(value.name):
                model.parameters.rename(value.name or "", same.name or "")
    for inner in _direct_subgraphs(graph):
        _deduplicate(model, inner, scopes, rewriter)


def _direct_subgraphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    for node in graph:
        yield from subgraphs(node)


def _may_merge(model: Model, value: ir.Value) -> bool:
    if value.const_value is None or value.const_value.dtype == ir.DataType.STRING:
        return False
    if value.is_graph_input() or value.is_graph_output():
        return False
    return not is_variable(model, value.name)


def _key(value: ir.Value) -> Hashable:
    tensor = value.const_value
    assert tensor is not None
    flat = tensor.numpy()
    sample = flat[tuple(_sample_index(flat.shape))] if flat.size else flat
    return (tensor.dtype, flat.shape, sample.tobytes())


def _sample_index(shape: tuple[int, ...]) -> Iterator[slice]:
    """A few elements spread over the last dimensions."""
    for size in shape:
        yield slice(None, None, max(1, size // 2)) if size > _SAMPLES else slice(0, 2)


def _same_content(a: ir.Value, b: ir.Value) -> bool:
    assert a.const_value is not None
    assert b.const_value is not None
    if a.const_value is b.const_value:
        return True
    return _equal(a.const_value.numpy(), b.const_value.numpy())


def _equal(a: Array, b: Array) -> bool:
    """Bit for bit. A constant that is one repeated element is compared by that element."""
    if not any(a.strides) and not any(b.strides) and a.size:
        return bool(a[(0,) * a.ndim].tobytes() == b[(0,) * b.ndim].tobytes())
    left, right = _bytes(a), _bytes(b)
    # Piece by piece: weights may be larger than memory.
    pieces = range(0, left.size, _PIECE)
    return all(np.array_equal(left[i : i + _PIECE], right[i : i + _PIECE]) for i in pieces)


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
