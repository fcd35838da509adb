"""Removing what a graph no longer needs once its outputs are fewer: nodes, weights, inputs and functions."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.operators.signatures import signature
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["keep_only", "leave_out_unread", "remove_uncalled"]


def keep_only(model: Model, rewriter: Rewriter, outputs: Iterable[ir.Value]) -> None:
    """Let the graph give these outputs and no others, and compute nothing for others alone."""
    kept = list(outputs)
    dropped = [v for v in model.graph.outputs if v not in kept]
    read = _read(model.graph)
    used = [v for node in model.graph for v in node.outputs if v.uses()]
    model.graph.outputs[:] = kept
    _prune(model, rewriter, read)
    leave_out_unread(v for v in (*dropped, *used) if v.graph is model.graph)


def leave_out_unread(values: Iterable[ir.Value]) -> None:
    """Results that an operator may leave out and that nobody reads: they would take memory to the end."""
    for value in values:
        node, index = value.producer(), value.index()
        if node is None or index is None or value.uses() or value.is_graph_output():
            continue
        known = signature(node.domain, node.op_type, 0)
        port = known.output(index) if known is not None else None
        if port is not None and port.optional:
            value.name = ""


def _prune(model: Model, rewriter: Rewriter, read_before: set[ir.Value]) -> None:
    """Remove nodes and weights that nothing needs, and the inputs that nothing reads any more."""
    graph = model.graph
    rewriter.remove(*reversed(list(graph)))
    graph.inputs[:] = [v for v in graph.inputs if v.uses() or v.is_graph_output() or v not in read_before]
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            del graph.initializers[name]
            model.parameters.lose(name)


def _read(graph: ir.Graph) -> set[ir.Value]:
    return {v for v in graph.inputs if v.uses() or v.is_graph_output()}


def remove_uncalled(model: Model, rewriter: Rewriter) -> None:
    """Remove the functions that neither the graph nor a function it calls has a call of."""
    functions = model.ir.functions
    needed: set[ir.OperatorIdentifier] = set()
    pending: list[ir.Graph] = [model.graph]
    while pending:
        for node in ir.traversal.RecursiveGraphIterator(pending.pop()):
            identifier = node.op_identifier()
            if identifier in functions and identifier not in needed:
                needed.add(identifier)
                pending.append(functions[identifier].graph)
    for identifier in [i for i in functions if i not in needed]:
        if rewriter.permit("::".join(filter(None, identifier)), "function is not called"):
            del functions[identifier]
