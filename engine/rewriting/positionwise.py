"""Operators that treat the positions along an axis alike: which part of each operand one position needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, rank_of
from fuseline.engine.shapes.dims import dims_of

__all__ = ["ELEMENTWISE", "Axes", "needed"]

Axes = Mapping[int, int]
"""Operand → the axis of which the same position is enough; operands that are not in it are needed whole."""

Rule = Callable[[Model, ir.Node, int, int], Axes | None]


def needed(model: Model, node: ir.Node, axis: int) -> Axes | None:
    """What one position along `axis` of the node's first result needs; None where positions are mixed."""
    rule = _RULES.get(node.op_type)
    rank = rank_of(node.outputs[0])
    if rule is None or rank is None or node.domain not in ("", "ai.onnx", "com.microsoft"):
        return None
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return None
    return rule(model, node, axis, rank)


def _elementwise(model: Model, node: ir.Node, axis: int, rank: int) -> Axes | None:
    axes = {}
    size = (dims_of(node.outputs[0]) or ())[axis]
    for index, operand in enumerate(node.inputs):
        dims = dims_of(operand)
        if dims is None:
            return None
        place = axis - (rank - len(dims))
        if place < 0 or dims[place] == 1:
            continue
        if dims[place] is None or dims[place] != size:
            return None
        axes[index] = place
    return axes


def _first_operand(model: Model, node: ir.Node, axis: int, rank: int) -> Axes | None:
    return {0: axis}


def _normalization(model: Model, node: ir.Node, axis: int, rank: int) -> Axes | None:
    return {0: axis} if axis < attribute(node, "axis", -1) % rank else None


def _along_another_axis(model: Model, node: ir.Node, axis: int, rank: int) -> Axes | None:
    return {0: axis} if axis != attribute(node, "axis", -1) % rank else None


def _reduction(model: Model, node: ir.Node, axis: int, rank: int) -> Axes | None:
    listed = constant(model, node.inputs[1]) if len(node.inputs) > 1 else None
    if listed is None or not attribute(node, "keepdims", 1):
        return None
    return {0: axis} if axis not in {int(a) % rank for a in listed} else None


def _matmul(model: Model, node: ir.Node, axis: int, rank: int) -> Axes | None:
    """A row of the product needs a row of the left operand."""
    count = rank_of(node.inputs[0])
    return {0: count - 2} if count is not None and count >= 2 and axis == rank - 2 else None


def _transpose(model: Model, node: ir.Node, axis: int, rank: int) -> Axes | None:
    return {0: int(attribute(node, "perm", list(range(rank))[::-1])[axis])}


def _reshape(model: Model, node: ir.Node, axis: int, rank: int) -> Axes | None:
    """The axis and all before it stay; what comes after is known, so that the new shape can be written."""
    source, result = dims_of(node.inputs[0]) or (), dims_of(node.outputs[0]) or ()
    kept = result[: axis + 1]
    if None in kept or source[: axis + 1] != kept:
        return None
    return {0: axis} if all(isinstance(d, int) for d in result[axis + 1 :]) else None


def _slice(model: Model, node: ir.Node, axis: int, rank: int) -> Axes | None:
    axes = constant(model, node.inputs[3]) if len(node.inputs) > 3 else None
    return {0: axis} if axes is not None and axis not in {int(a) % rank for a in axes} else None


ELEMENTWISE = frozenset(
    [
        "Add",
        "And",
        "Div",
        "Equal",
        "Erf",
        "Exp",
        "FastGelu",
        "Gelu",
        "Identity",
        "Max",
        "Min",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "Reciprocal",
        "Relu",
        "Sigmoid",
        "Sqrt",
        "Sub",
        "Tanh",
        "Where",
    ]
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "Cast": _first_operand,
    "Dropout": _first_operand,
    "LayerNormalization": _normalization,
    "SimplifiedLayerNormalization": _normalization,
    "Softmax": _along_another_axis,
    "ReduceMean": _reduction,
    "MatMul": _matmul,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Slice": _slice,
}
