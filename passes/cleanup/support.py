"""What cleanup passes share: recognising standard operators and taking a node out of the way."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.rewriter import Rewriter

__all__ = [
    "bypass",
    "function_graphs",
    "has_references",
    "is_op",
    "nodes_of",
    "only_user",
    "opset_of",
    "subgraphs",
]

STANDARD_DOMAINS = ("", "ai.onnx")


def is_op(node: ir.Node | None, *op_types: str) -> bool:
    """Whether the node is one of these standard operators."""
    return node is not None and node.op_type in op_types and node.domain in STANDARD_DOMAINS


def nodes_of(model: Model, *op_types: str) -> Iterator[ir.Node]:
    """Every node of these standard operators, in any graph; the graphs may be changed meanwhile."""
    for root in (model.graph, *(f.graph for f in model.ir.functions.values())):
        yield from _nodes_in(root, op_types)


def _nodes_in(graph: ir.Graph, op_types: tuple[str, ...]) -> Iterator[ir.Node]:
    for node in graph:
        if node.op_type in op_types and node.domain in STANDARD_DOMAINS:
            yield node
        for attribute in node.attributes.data.values():
            if attribute.value.__class__ is ir.Graph:
                yield from _nodes_in(attribute.value, op_types)


def function_graphs(model: Model) -> set[ir.Graph]:
    """The bodies of functions and what is nested in them, where initializers are not allowed."""
    bodies = [f.graph for f in model.ir.functions.values()]
    return {g for body in bodies for g in (body, *body.subgraphs())}


def has_references(node: ir.Node) -> bool:
    """Whether an attribute is a function's parameter, so that its value is not known here."""
    return any(a.is_ref() for a in node.attributes.values())


def opset_of(model: Model, node: ir.Node) -> int:
    """The version of the standard operators that the node's graph, or function, uses."""
    imports = node.graph.opset_imports if node.graph is not None else {}
    return imports.get("", imports.get("ai.onnx", 0)) or model.opset()


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs directly inside a control-flow node."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def only_user(value: ir.Value) -> ir.Node | None:
    """The one node that reads the value, if nothing else does."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    return next(iter(uses)).node


def bypass(rewriter: Rewriter, node: ir.Node, source: ir.Value, note: str) -> bool:
    """Let the users of the node's first output read `source`; the node goes unless it must name an output."""
    old = node.outputs[0]
    if old.is_graph_output() and not _can_take_name(source, old):
        return _bypass_inside(rewriter, node, source, note)
    if not rewriter.permit(node, note):
        return False
    rewriter.redirect(old, source)
    rewriter.remove(node)
    return True


def _can_take_name(source: ir.Value, output: ir.Value) -> bool:
    return source.producer() is not None and not source.is_graph_output() and source.graph is output.graph


def _bypass_inside(rewriter: Rewriter, node: ir.Node, source: ir.Value, note: str) -> bool:
    """The node stays to give the graph output its name; everyone else reads `source`."""
    old = node.outputs[0]
    if not old.uses() or not rewriter.permit(node, note):
        return False
    for user, index in tuple(old.uses()):
        user.replace_input_with(index, source)
    return True
