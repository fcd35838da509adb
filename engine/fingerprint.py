"""A cheap hash of everything a pass may change."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

if TYPE_CHECKING:
    from fuseline.engine.model import Model

__all__ = ["fingerprint"]


def fingerprint(model: Model) -> int:
    parts: list[Hashable] = [tuple(sorted(model.ir.graph.opset_imports.items())), model.ir.ir_version]
    for graph in model.graphs():
        parts.append(tuple((v.name, _typing(v)) for v in graph.inputs))
        parts.append(tuple((v.name, _typing(v)) for v in graph.outputs))
        parts.append(tuple((name, id(v.const_value)) for name, v in graph.initializers.items()))
        parts.extend(_node(node) for node in graph)
    parts.extend(model.parameters)
    return hash(tuple(parts))


def _node(node: ir.Node) -> int:
    return hash(
        (
            node.domain,
            node.op_type,
            tuple(v.name if v is not None else None for v in node.inputs),
            tuple((v.name, _typing(v)) for v in node.outputs),
            tuple((name, _attribute(a)) for name, a in node.attributes.items()),
        )
    )


def _typing(value: ir.Value) -> Hashable:
    shape = value.shape
    dims = None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)
    return (value.type, dims)


def _attribute(attribute: ir.Attr) -> Hashable:
    if attribute.is_ref():
        return ("ref", attribute.ref_attr_name)
    value: Any = attribute.value
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return "graph"  # its nodes are counted on their own
    if isinstance(value, (int, float, str, bytes)):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(v, (int, float, str, bytes)) for v in value):
        return tuple(value)
    return id(value)
