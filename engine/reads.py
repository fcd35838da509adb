"""What a node reads."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["read_by"]


def read_by(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node, with the outer values that its subgraphs read."""
    values = [v for v in node.inputs if v is not None]
    for attribute in node.attributes.values():
        if attribute.is_ref() or attribute.type != ir.AttributeType.GRAPH:
            continue
        nodes = list(ir.traversal.RecursiveGraphIterator(attribute.as_graph()))
        inside = {attribute.as_graph(), *(n.graph for n in nodes)}
        values.extend(v for n in nodes for v in n.inputs if v is not None and v.graph not in inside)
    return values
