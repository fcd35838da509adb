"""Operators that treat rows alike: the leading axes of a value, taken as one, are its rows."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_standard, rank_of
from fuseline.engine.operators import Trait, record
from fuseline.engine.rewriting.positionwise import Axes, needed
from fuseline.engine.shapes.dims import dims_of, known, product

__all__ = ["columns", "is_linear", "row_operands"]

_NUMBER_AXES = frozenset(["Slice", "Transpose"])
"""Operators that count axes from the front, where several may become one."""


def row_operands(model: Model, node: ir.Node, leading: int) -> Axes | None:
    """Operand → how many of its leading axes are the rows of the node's first `leading` axes.

    Operands that are not in it are the same for all rows. None where rows are mixed or cannot be told.
    """
    if node.op_type == "Reshape":
        return _reshape(node, leading)
    if is_linear(node):
        return _linear(node, leading)
    return _alike(model, node, leading)


def is_linear(node: ir.Node) -> bool:
    """Whether it multiplies rows with one matrix."""
    return node.op_type in ("MatMul", "Gemm") and is_standard(node) and rank_of(node.inputs[1]) == 2


def columns(value: ir.Value | None, leading: int) -> list[int] | None:
    """The axes behind the rows, if their sizes are known."""
    behind = (dims_of(value) or (None,))[leading:]
    sizes = [d for d in behind if isinstance(d, int)]
    return sizes if len(sizes) == len(behind) else None


def _linear(node: ir.Node, leading: int) -> Axes | None:
    rank = rank_of(node.inputs[0])
    if rank is None or leading >= rank:
        return None
    if node.op_type == "Gemm":
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if attribute(node, "transA", 0) or (bias is not None and rank_of(bias) != 1):
            return None
    return {0: leading}


def _reshape(node: ir.Node, leading: int) -> Axes | None:
    """The rows may be split over other axes, and so may what is in a row: no element changes its row."""
    source, result = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    if source is None or result is None:
        return None
    rows = product(result[:leading])
    for inner in range(1, len(source) + 1):
        if rows is None or product(source[:inner]) != rows:
            continue
        within = source[inner:], result[leading:]
        if within[0] == within[1] or (
            all(known(dims) for dims in within) and product(within[0]) == product(within[1])
        ):
            return {0: inner}
    return None


def _alike(model: Model, node: ir.Node, leading: int) -> Axes | None:
    by_axis = [needed(model, node, axis) for axis in range(leading)]
    first = by_axis[0]
    if first is None or any(axes != dict.fromkeys(first, axis) for axis, axes in enumerate(by_axis)):
        return None
    if leading > 1 and (node.op_type in _NUMBER_AXES or not _from_the_end(model, node)):
        return None
    rank = rank_of(node.outputs[0])
    assert rank is not None
    others = [v for place, v in enumerate(node.inputs) if place not in first]
    # An operand with more ones in front than the rows then have axes would give them theirs.
    operator = record(node)
    elementwise = operator is not None and operator.has(Trait.ELEMENTWISE)
    if elementwise and any((rank_of(v) or 0) > rank - leading + 1 for v in others):
        return None
    return dict.fromkeys(first, leading)


def _from_the_end(model: Model, node: ir.Node) -> bool:
    """Whether the axes that a reduction takes as an operand are the same with fewer axes in front."""
    if node.op_type != "ReduceMean":
        return True
    axes = constant(model, node.inputs[1])
    return axes is not None and bool((axes < 0).all())
