"""Which part of each operand one position along an axis of the result needs: rules that records name.

A rule gets model, node, axis and the rank of the first result. It maps each operand of which the same
position is enough to the axis of that position; operands it leaves out are needed whole. None: positions are
mixed.
"""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, rank_of
from fuseline.engine.shapes.dims import dims_of

__all__ = [
    "along_another_axis",
    "elementwise",
    "first_operand",
    "matmul",
    "normalization",
    "reduction",
    "reshape",
    "slice_",
    "transpose",
]


def elementwise(model: Model, node: ir.Node, axis: int, rank: int) -> dict[int, int] | None:
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


def first_operand(model: Model, node: ir.Node, axis: int, rank: int) -> dict[int, int] | None:
    return {0: axis}


def normalization(model: Model, node: ir.Node, axis: int, rank: int) -> dict[int, int] | None:
    return {0: axis} if axis < attribute(node, "axis", -1) % rank else None


def along_another_axis(model: Model, node: ir.Node, axis: int, rank: int) -> dict[int, int] | None:
    return {0: axis} if axis != attribute(node, "axis", -1) % rank else None


def reduction(model: Model, node: ir.Node, axis: int, rank: int) -> dict[int, int] | None:
    listed = constant(model, node.inputs[1]) if len(node.inputs) > 1 else None
    if listed is None or not attribute(node, "keepdims", 1):
        return None
    return {0: axis} if axis not in {int(a) % rank for a in listed} else None


def matmul(model: Model, node: ir.Node, axis: int, rank: int) -> dict[int, int] | None:
    """A row of the product needs a row of the left operand."""
    count = rank_of(node.inputs[0])
    return {0: count - 2} if count is not None and count >= 2 and axis == rank - 2 else None


def transpose(model: Model, node: ir.Node, axis: int, rank: int) -> dict[int, int] | None:
    return {0: int(attribute(node, "perm", list(range(rank))[::-1])[axis])}


def reshape(model: Model, node: ir.Node, axis: int, rank: int) -> dict[int, int] | None:
    """The axis and all before it stay; what comes after is known, so that the new shape can be written."""
    source, result = dims_of(node.inputs[0]) or (), dims_of(node.outputs[0]) or ()
    kept = result[: axis + 1]
    if None in kept or source[: axis + 1] != kept:
        return None
    return {0: axis} if all(isinstance(d, int) for d in result[axis + 1 :]) else None


def slice_(model: Model, node: ir.Node, axis: int, rank: int) -> dict[int, int] | None:
    axes = constant(model, node.inputs[3]) if len(node.inputs) > 3 else None
    return {0: axis} if axes is not None and axis not in {int(a) % rank for a in axes} else None
