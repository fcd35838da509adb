"""Operators that treat the positions along an axis alike: which part of each operand one position needs."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import rank_of
from fuseline.engine.operators import record

__all__ = ["Axes", "needed"]

Axes = Mapping[int, int]
"""Operand → the axis of which the same position is enough; operands that are not in it are needed whole."""


def needed(model: Model, node: ir.Node, axis: int) -> Axes | None:
    """What one position along `axis` of the node's first result needs; None where positions are mixed."""
    operator, rank = record(node), rank_of(node.outputs[0])
    if operator is None or operator.positions is None or rank is None:
        return None
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return None
    return operator.positions(model, node, axis, rank)
