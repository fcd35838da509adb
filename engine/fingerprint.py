"""A cheap hash of everything a pass may change."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

if TYPE_CHECKING:
    from fuseline.engine.model import Model

__all__ = ["fingerprint"]

_HASHABLE = {int, float, str, tuple}


def fingerprint(model: Model) -> int:
    parts: list[Hashable] = [tuple(sorted(model.ir.graph.opset_imports.items())), model.ir.ir_version]
    for graph in model.graphs():
        parts.append(tuple([(v.name, *_typing(v)) for v in graph.inputs]))
        parts.append(tuple([(v.name, *_typing(v)) for v in graph.outputs]))
        parts.append(tuple([(name, id(v.const_value)) for name, v in graph.initializers.data.items()]))
        parts.extend([_node(node) for node in graph])
    parts.extend(model.parameters)
    return hash(tuple(parts))


def _node(node: ir.Node) -> int:
    # A run asks for this after every pass: the properties of onnx_ir, a Python call each, took a third of it.
    return hash(
        (
            node._domain,
            node._op_type,
            tuple([v._name if v is not None else None for v in node._inputs]),
            tuple([(v._name, *_typing(v)) for v in node._outputs]),
            tuple([(name, _attribute(a)) for name, a in node._attributes.data.items()])
            if node._attributes.data
            else None,
        )
    )


def _typing(value: ir.Value) -> tuple[Any, Any]:
    kind, shape = value._type, value._shape
    # The hash of a type is made from its text, which is slow; nearly all are plain tensors.
    described = kind._dtype if kind.__class__ is ir.TensorType else kind  # type: ignore[union-attr]
    return described, None if shape is None else tuple(shape._dims)


def _attribute(attribute: ir.Attr) -> Hashable:
    value: Any = attribute._value
    if value.__class__ in _HASHABLE:
        return value  # type: ignore[no-any-return]
    if attribute.is_ref():
        return ("ref", attribute.ref_attr_name)
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return "graph"  # its nodes are counted on their own
    return tuple(value) if isinstance(value, list) else id(value)
