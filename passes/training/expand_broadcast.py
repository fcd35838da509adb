"""The pass `expand-broadcast`."""

from __future__ import annotations

from itertools import zip_longest

import onnx_ir as ir

from fuseline.engine.analysis.learns import Learns
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import Dim, dims_of, uncapped

__all__ = ["ExpandBroadcast"]

_OPERATORS = ("Add", "Sub", "Mul", "Div", "Pow", "PRelu")


class ExpandBroadcast(Pass):
    """Add(a, b) of sizes that may be 1 without being known to → Add(Expand(a), b)

    ONNX Runtime's gradient builder takes an open size for another one than 1, and does not sum over an axis
    along which it was 1 after all; the gradient of Expand looks when it runs. So it is for Sub, Mul, Div and
    Pow. Operands that hold no gradient stay as they are.
    """

    name = "expand-broadcast"
    phase = "pre-gradient"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        learns = rewriter.analysis(Learns)
        trained = learns.values | set(_weights(model))
        for node in list(learns.nodes):
            if not is_op(node, *_OPERATORS) or len(node.inputs) != 2:
                continue
            a, b = node.inputs
            if a is None or b is None:
                continue
            for index, (own, other) in enumerate(((a, b), (b, a))):
                if own in trained and not _done(own, other) and _may_be_broadcast(own, other):
                    _expand(rewriter, node, index, other)
        return rewriter.changes


def _weights(model: Model) -> list[ir.Value]:
    named = [model.graph.initializers.get(name) for name in model.parameters.trainable_values()]
    fed = [v for v in model.graph.inputs if model.parameters.is_trainable(v.name)]
    return [v for v in named if v is not None] + fed


def _may_be_broadcast(own: ir.Value, other: ir.Value) -> bool:
    """Whether along an axis its size may be 1 and the other's not, and nobody can tell."""
    mine, theirs = dims_of(own), dims_of(other)
    if mine is None or theirs is None:
        return False  # without a shape the builder itself leaves it to the run
    sizes = zip_longest(reversed(mine), reversed(theirs), fillvalue=1)
    return any(_open(x, y) for x, y in sizes)


def _done(own: ir.Value, other: ir.Value) -> bool:
    """Whether it is expanded to the shape of the other, or of what that was before it was expanded."""
    node, beside = own.producer(), other.producer()
    sizes = node.inputs[1] if is_op(node, "Expand") and node is not None else None
    source = sizes.producer() if sizes is not None else None
    if source is None or not is_op(source, "Shape"):
        return False
    before = beside.inputs[0] if beside is not None and is_op(beside, "Expand") else other
    return source.inputs[0] in (other, before)


def _open(mine: Dim, theirs: Dim) -> bool:
    if isinstance(mine, int) or theirs == 1:
        return False
    # Of min(limit,S) and S, one is 1 where the other is.
    return mine is None or (mine != theirs and uncapped(mine) != theirs and uncapped(theirs) != mine)


def _expand(rewriter: Rewriter, node: ir.Node, index: int, other: ir.Value) -> None:
    if not rewriter.permit(node, "an operand that may be broadcast"):
        return
    op = rewriter.builder(node)
    expanded = op.Expand(node.inputs[index], op.Shape(other))
    rewriter.insert(node, op.nodes)
    node.replace_input_with(index, expanded)
