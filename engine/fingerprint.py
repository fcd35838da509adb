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
    return hash(
        (
            node.domain,
            node.op_type,
            tuple([v.name if v is not None else None for v in node.inputs]),
            tuple([(v.name, *_typing(v)) for v in node.outputs]),
            tuple([(name, _attribute(a)) for name, a in node.attributes.data.items()]),
        )
    )


def _typing(value: ir.Value) -> tuple[Any, Any]:
    kind, shape = value.type, value.shape
    # The hash of a type is made from its text, which is slow; nearly all are plain tensors.
    described = int(kind.dtype) if kind.__class__ is ir.TensorType else kind
    return described, None if shape is None else shape.dims


def _attribute(attribute: ir.Attr) -> Hashable:
    value: Any = attribute.value
    if value.__class__ in _HASHABLE:
        return value  # type: ignore[no-any-return]
    if attribute.is_ref():
        return ("ref", attribute.ref_attr_name)
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return "graph"  # its nodes are counted on their own
    return tuple(value) if isinstance(value, list) else id(value)
