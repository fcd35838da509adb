"""The pass `eliminate-common-subexpressions`."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable
from typing import Any

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import subgraphs
from fuseline.engine.operators import record
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["EliminateCommonSubexpressions"]

_LARGEST_TENSOR = 1024


class EliminateCommonSubexpressions(Pass):
    """f(x), f(x) → f(x), once

    Nodes inside a subgraph also find what the graphs around it have computed before. Random operators and
    operators that nothing is known of are never merged, nor are two graph outputs.
    """

    name = "eliminate-common-subexpressions"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for graph in (model.graph, *(f.graph for f in model.ir.functions.values())):
            _eliminate(graph, ChainMap(), rewriter)
        return rewriter.changes


def _eliminate(graph: ir.Graph, seen: ChainMap[Hashable, ir.Node], rewriter: Rewriter) -> None:
    for node in graph:
        inner = list(subgraphs(node))
        for body in inner:
            _eliminate(body, seen.new_child(), rewriter)
        key = None if inner else _key(node)
        if key is None:
            continue
        first = seen.setdefault(key, node)
        if first is not node and _can_merge(first, node) and rewriter.permit(node, f"same as {first.name}"):
            _merge(rewriter, first, node)


def _key(node: ir.Node) -> Hashable | None:
    """Equal for nodes that compute the same; None for a node that must be left alone."""
    operator = record(node)
    if operator is None or not operator.pure or not node.outputs:
        return None
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        content = _content(attribute)
        if content is None:
            return None
        attributes.append((name, attribute.type, content))
    present = tuple(bool(v.name) for v in node.outputs)
    return (node.domain, node.op_type, tuple(map(id, node.inputs)), tuple(attributes), present)


def _content(attribute: ir.Attr) -> Hashable | None:
    if attribute.is_ref():
        return ("ref", attribute.ref_attr_name)
    value: Any = attribute.value
    if attribute.type == ir.AttributeType.TENSOR:
        small = value.size <= _LARGEST_TENSOR and value.dtype != ir.DataType.STRING
        return (value.dtype, tuple(value.shape.numpy()), value.tobytes()) if small else None
    if isinstance(value, (list, tuple)):
        return tuple(value) if all(isinstance(v, (int, float, str)) for v in value) else None
    return value if isinstance(value, (int, float, str)) else None


def _can_merge(first: ir.Node, node: ir.Node) -> bool:
    """A graph output can move to the first node only if that gives it a single name."""
    outputs = [(a, b) for a, b in zip(first.outputs, node.outputs, strict=True) if b.is_graph_output()]
    return all(not a.is_graph_output() and first.graph is node.graph for a, _ in outputs)


def _merge(rewriter: Rewriter, first: ir.Node, node: ir.Node) -> None:
    for kept, old in zip(first.outputs, tuple(node.outputs), strict=True):
        rewriter.redirect(old, kept)
    rewriter.remove(node)
