"""The pass `eliminate-zero-state`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, is_op, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["EliminateZeroState"]

_STATES = (5, 6)  # initial_h, and initial_c of an LSTM
_SMALL = 1 << 16
_MOVING = (
    "Cast",
    "Expand",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
)


class EliminateZeroState(Pass):
    """LSTM(…, initial state of zeros) → LSTM(…), whose state is zeros where none is given

    GRU and RNN too. Exporters compute that state from the batch's size, with a dozen nodes.
    """

    name = "eliminate-zero-state"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "LSTM", "GRU", "RNN"):
            for index in _STATES:
                value = node.inputs[index] if index < len(node.inputs) else None
                if value is None:
                    continue
                if not _is_zero(model, value):
                    rewriter.reject(node, f"{value.name!r} is not known to hold zeros")
                elif rewriter.permit(node, "a state of zeros"):
                    node.replace_input_with(index, None)
        return rewriter.changes


def _is_zero(model: Model, value: ir.Value) -> bool:
    """Whether it holds nothing but zeros, whatever its size: made as such, and then only moved."""
    content = constant(model, value, at_most=_SMALL)
    if content is not None:
        return not content.any()
    node = value.producer()
    if node is None or has_references(node):
        return False
    if is_op(node, "ConstantOfShape"):
        filled = node.attributes.get_tensor("value")
        return filled is None or not filled.numpy().any()
    if is_op(node, "Concat"):
        return all(v is not None and _is_zero(model, v) for v in node.inputs)
    first = node.inputs[0] if is_op(node, *_MOVING) else None
    return first is not None and _is_zero(model, first)
