"""Attributes of nodes, with the defaults of the operator's schema."""

from __future__ import annotations

import functools
import math
from typing import Any

import onnx
import onnx_ir as ir

from fuseline.engine.model import Model

__all__ = ["attribute", "attribute_agrees"]


def attribute(model: Model, node: ir.Node, name: str) -> Any:
    """The attribute's value as Python sees it, the schema's default if it is absent, or None."""
    found = node.attributes.get(name)
    if found is None:
        return _default(node.op_type, node.domain, model.opset(node.domain), name)
    value = found.value
    return tuple(value) if isinstance(value, (list, tuple)) else value


@functools.cache
def _default(op_type: str, domain: str, version: int, name: str) -> Any:
    domain = "" if domain == "ai.onnx" else domain
    try:
        schema = onnx.defs.get_schema(op_type, version or onnx.defs.onnx_opset_version(), domain)
    except onnx.defs.SchemaError:
        return None
    declared = schema.attributes.get(name)
    if declared is None or declared.default_value.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(declared.default_value)
    return value.decode() if isinstance(value, bytes) else value


def attribute_agrees(node: ir.Node, name: str, expected: Any, found: Any) -> bool:
    """Whether an attribute meets its condition; an axis may be counted from either end."""
    if callable(expected):
        return bool(expected(found))
    if isinstance(expected, float) and isinstance(found, (int, float)):
        return math.isclose(expected, found, rel_tol=1e-4)
    if isinstance(expected, list):
        expected = tuple(expected)
    if name == "axis" and isinstance(expected, int) and isinstance(found, int) and expected != found:
        # Other inputs, such as a scale, may have another rank.
        main = (*node.inputs[:1], *node.outputs[:1])
        rank = next((len(v.shape) for v in main if v is not None and v.shape is not None), None)
        return rank is not None and expected % rank == found % rank
    return bool(expected == found)
