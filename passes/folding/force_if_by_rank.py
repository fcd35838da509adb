"""The pass `force-if-by-rank`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.constants import constant, is_constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, is_op, nodes_of
from fuseline.engine.operators import record
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of
from fuseline.engine.shapes.rules import same

__all__ = ["ForceIfByRank"]

_FARTHEST = 8
_RECURRENT_INPUTS = (0, 5, 6)


class ForceIfByRank(Pass):
    """If(c) with a branch whose rank its users refuse → If(constant)

    Exporters turn `squeeze` into such Ifs. LSTM takes rank 3 and Conv the rank of its weights; if one branch
    cannot lead there, the other is taken whenever the model runs at all. `inline-constant-if` does the rest.
    """

    name = "force-if-by-rank"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "If"):
            condition = node.inputs[0]
            if condition is None or is_constant(model, condition):
                continue
            taken = _forced_branch(model, node)
            if taken is None or not rewriter.permit(node, f"only its {taken} branch has a rank that fits"):
                continue
            op = rewriter.builder(node)
            forced = op.constant(taken == "then", "condition")
            rewriter.insert(node, op.nodes, replaces=(node,))
            # Nodes of one graph run together, so the others see the same condition.
            for user, index in tuple(condition.uses()):
                if user.graph is node.graph and is_op(user, "If") and index == 0:
                    user.replace_input_with(0, forced)
        return rewriter.changes


def _forced_branch(model: Model, node: ir.Node) -> str | None:
    branches = [node.attributes[f"{name}_branch"].as_graph() for name in ("then", "else")]
    for index, output in enumerate(node.outputs):
        ranks = [_rank(graph.outputs[index]) for graph in branches]
        if None in ranks or ranks[0] == ranks[1]:
            continue
        needed = _needed_rank(model, output, _FARTHEST)
        if needed in ranks:
            return "then" if ranks[0] == needed else "else"
    return None


def _rank(value: ir.Value) -> int | None:
    dims = dims_of(value)
    return len(dims) if dims is not None else None


def _needed_rank(model: Model, value: ir.Value, steps: int) -> int | None:
    """The rank that some user in the same graph insists on."""
    for user, index in value.uses():
        if user.graph is not value.graph or has_references(user):
            continue
        needed = _needed_by(model, user, index, steps)
        if needed is not None:
            return needed
    return None


def _needed_by(model: Model, user: ir.Node, index: int, steps: int) -> int | None:
    if is_op(user, "LSTM", "GRU", "RNN"):
        return 3 if index in _RECURRENT_INPUTS else None
    if is_op(user, "Conv"):
        return _rank(user.inputs[1]) if index == 0 and user.inputs[1] is not None else None
    if index != 0 or not steps:
        return None
    if is_op(user, "Unsqueeze", "Squeeze") and len(user.inputs) == 2:
        axes = constant(model, user.inputs[1], at_most=16)
        needed = _needed_rank(model, user.outputs[0], steps - 1)
        if axes is None or needed is None:
            return None
        return needed - axes.size if user.op_type == "Unsqueeze" else needed + axes.size
    operator = record(user)
    if operator is not None and operator.shape is same:
        return _needed_rank(model, user.outputs[0], steps - 1)
    return None
