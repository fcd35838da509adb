"""Questions about single nodes: which operator, which attributes, what it reads, who reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from fuseline.engine.model import Model

__all__ = [
    "STANDARD_DOMAINS",
    "attribute",
    "attributes",
    "function_graphs",
    "has_references",
    "is_op",
    "is_standard",
    "nodes_of",
    "normal_domain",
    "only_user",
    "opset_at",
    "opset_of",
    "rank_of",
    "read_by",
    "root_of",
    "subgraphs",
]

STANDARD_DOMAINS = ("", "ai.onnx")


def normal_domain(domain: str) -> str:
    """ONNX's own domain has two names."""
    return "" if domain == "ai.onnx" else domain


def is_standard(node: ir.Node) -> bool:
    return node.domain in STANDARD_DOMAINS


def is_op(node: ir.Node | None, *op_types: str) -> bool:
    """Whether the node is one of these standard operators, and all its attributes are its own.

    In a function an attribute may be the function's: what it is then, each call says.
    """
    return (
        node is not None
        and node.op_type in op_types
        and node.domain in STANDARD_DOMAINS
        and not has_references(node)
    )


def nodes_of(model: Model, *op_types: str) -> Iterator[ir.Node]:
    """Every node that `is_op` one of these, in any graph; the graphs may be changed meanwhile."""
    for root in (model.graph, *(f.graph for f in model.ir.functions.values())):
        yield from _nodes_in(root, op_types)


def _nodes_in(graph: ir.Graph, op_types: tuple[str, ...]) -> Iterator[ir.Node]:
    for node in graph:
        if node._op_type in op_types and is_op(node, node._op_type):
            yield node
        for attribute in node._attributes.data.values():
            if attribute._value.__class__ is ir.Graph:
                yield from _nodes_in(attribute._value, op_types)


def function_graphs(model: Model) -> set[ir.Graph]:
    """The bodies of functions and what is nested in them, where initializers are not allowed."""
    bodies = [f.graph for f in model.ir.functions.values()]
    return {g for body in bodies for g in (body, *body.subgraphs())}


def has_references(node: ir.Node) -> bool:
    """Whether an attribute is a function's parameter, so that its value is not known here."""
    return any(a._ref_attr_name is not None for a in node._attributes.data.values())


def root_of(model: Model, graph: ir.Graph) -> ir.Graph:
    """The main graph or the function body that a graph is nested in."""
    if graph is model.graph or not model.ir.functions:
        return model.graph
    for function in model.ir.functions.values():
        if function.graph is graph or any(inner is graph for inner in function.subgraphs()):
            return function.graph
    return model.graph


def opset_at(model: Model, graph: ir.Graph, domain: str = "") -> int:
    """The version of a domain that holds in a graph, which a function sets for itself; 0 if it has none."""
    imports = root_of(model, graph).opset_imports
    return imports.get(domain, imports.get("ai.onnx", 0) if domain == "" else 0)


def opset_of(model: Model, node: ir.Node) -> int:
    """The version of the standard operators that holds where the node is."""
    return opset_at(model, node.graph) if isinstance(node.graph, ir.Graph) else model.opset()


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


def read_by(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node, with the outer values that its subgraphs read."""
    values = [v for v in node.inputs if v is not None]
    for graph in subgraphs(node):
        nodes = list(ir.traversal.RecursiveGraphIterator(graph))
        inside = {graph, *(n.graph for n in nodes)}
        inner = [*(v for n in nodes for v in n.inputs if v is not None), *graph.outputs]
        values.extend(v for v in inner if v.graph not in inside)
    return values


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """The value of an attribute, or `default` where it is absent."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def attributes(node: ir.Node) -> dict[str, Any]:
    """The values of all attributes, by name."""
    return {name: found.value for name, found in node.attributes.items()}


def rank_of(value: ir.Value | None) -> int | None:
    """The number of axes, or None where it is not known."""
    return None if value is None or value.shape is None else len(value.shape)
