"""The pass `inline-constant-if`."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.naming import fresh_name
from fuseline.engine.nodes import function_graphs, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["InlineConstantIf"]


class InlineConstantIf(Pass):
    """If(constant) → the nodes of the branch that is taken"""

    name = "inline-constant-if"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        names: Counter[str] | None = None
        in_functions = function_graphs(model)
        # Inner ones first: what is inlined then comes along with its surroundings.
        for node in reversed(list(nodes_of(model, "If"))):
            condition = constant(model, node.inputs[0], at_most=1)
            if condition is None or node.graph is None:
                continue
            branch = node.attributes["then_branch" if condition.all() else "else_branch"].as_graph()
            if node.graph in in_functions and branch.initializers:
                rewriter.reject(node, "the branch has initializers, which a function cannot hold")
                continue
            if not rewriter.permit(node, f"condition is always {bool(condition.all())}"):
                continue
            names = names if names is not None else _names(model)
            _inline(rewriter, node, branch, names)
        return rewriter.changes


def _names(model: Model) -> Counter[str]:
    names: Counter[str] = Counter()
    for graph in model.graphs():
        names.update(v.name or "" for v in graph.inputs)
        names.update(list(graph.initializers))
        names.update(v.name or "" for node in graph for v in node.outputs)
    return names


def _inline(rewriter: Rewriter, node: ir.Node, branch: ir.Graph, names: Counter[str]) -> None:
    """Move the branch's content in front of the node, then let its outputs take over."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    results = list(branch.outputs)
    branch.outputs.clear()  # first: what is still an output of the branch cannot join another graph
    initializers = list(branch.initializers.values())
    branch.initializers.clear()
    for value in initializers:
        _make_unique(value, names)
        graph.register_initializer(value)
    for inner in ir.traversal.RecursiveGraphIterator(branch):
        for value in inner.outputs:
            _make_unique(value, names)
    moved = list(branch)
    branch.remove(moved)
    graph.insert_before(node, moved)
    for old, new in zip(node.outputs, results, strict=True):
        rewriter.redirect(old, new)
    rewriter.remove(node)


def _make_unique(value: ir.Value, names: Counter[str]) -> None:
    """Branches of different nodes may have used the same name."""
    if value.name is None or names[value.name] < 2:
        return
    names[value.name] -= 1
    value.name = fresh_name(value.name, names.__contains__)
    names[value.name] += 1
