"""11. Not a pattern: a chain of any shape and length, gathered by walking the graph."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter


class SumMany(Pass):
    """Add(Add(a, b), Add(c, d)) → Sum(a, b, c, d)

    Sums inside that are read elsewhere, or are outputs, stay as they are.
    """

    name = "sum-many"
    at_least: int = 3
    """How many terms are worth it."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for graph in model.graphs():
            for node in reversed(list(graph)):
                if is_op(node, "Add") and node.graph is graph and not _is_inner(node):
                    self._gather(rewriter, node)
        return rewriter.changes

    def _gather(self, rewriter: Rewriter, node: ir.Node) -> None:
        terms, sums = _terms(node)
        if len(terms) < self.at_least:
            rewriter.reject(node, f"it has {len(terms)} terms, fewer than {self.at_least}")
        elif rewriter.permit(node, self.summary()):
            op = rewriter.builder(node)
            total = op.Sum(*terms)
            rewriter.replace(sums, op.nodes, [(node.outputs[0], total)])


def _terms(node: ir.Node) -> tuple[list[ir.Value | None], list[ir.Node]]:
    """What is added up in the end, and the nodes that do it, the last one first."""
    terms: list[ir.Value | None] = []
    sums = [node]
    for value in node.inputs:
        maker = value.producer() if value is not None else None
        if maker is not None and is_op(maker, "Add") and _is_inner(maker):
            more, inner = _terms(maker)
            terms += more
            sums += inner
        else:
            terms.append(value)
    return terms, sums


def _is_inner(node: ir.Node) -> bool:
    """Whether the sum is read once, by another sum of the same graph."""
    result = node.outputs[0]
    users = [user for user, _ in result.uses()]
    inside = len(users) == 1 and is_op(users[0], "Add") and users[0].graph is node.graph
    return inside and not result.is_graph_output()
