"""The pass `remove-unused`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import subgraphs
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.pruning import remove_uncalled
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["RemoveUnused"]


class RemoveUnused(Pass):
    """nodes, initializers and functions that no output needs → gone

    The interface stays: graph inputs and outputs are kept whether used or not, and so are the default values
    of inputs, and buffers that are only written. A trainable parameter that nothing uses leaves the graph but
    keeps its place in the map.
    """

    name = "remove-unused"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        remove_uncalled(model, rewriter)
        roots = [model.graph, *(f.graph for f in model.ir.functions.values())]
        for graph in roots:
            _remove_nodes(graph, rewriter)
        for graph in model.graphs():
            _remove_initializers(model, graph, rewriter)
        return rewriter.changes


def _remove_nodes(graph: ir.Graph, rewriter: Rewriter) -> None:
    """Backwards, subgraphs included: a node's users, wherever they are, have been looked at before it."""
    for node in reversed(graph):
        if any(v.uses() or v.is_graph_output() for v in node.outputs):
            for inner in subgraphs(node):
                _remove_nodes(inner, rewriter)
        elif rewriter.permit(node, "no output is used"):
            rewriter.remove(node)


def _remove_initializers(model: Model, graph: ir.Graph, rewriter: Rewriter) -> None:
    written = set(model.facts.training.updates.values())
    for name, value in list(graph.initializers.items()):
        if name in written or value.uses() or value.is_graph_input() or value.is_graph_output():
            continue
        if rewriter.permit(name, "initializer is not used"):
            del graph.initializers[name]
            model.parameters.lose(name)
