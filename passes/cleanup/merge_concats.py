"""The pass `merge-concats`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, is_op, nodes_of, only_user
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["MergeConcats"]


class MergeConcats(Pass):
    """Concat(Concat(a, b), c) along one axis → Concat(a, b, c)

    Where nothing else uses the inner one.
    """

    name = "merge-concats"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Concat"):
            if has_references(node):
                continue
            axis = node.attributes.get_int("axis", 0)
            inner = [_inner(v, node, axis) for v in node.inputs]
            if not any(inner) or not rewriter.permit(node, "concat of concats"):
                continue
            inputs: list[ir.Value | None] = []
            for value, source in zip(node.inputs, inner, strict=True):
                inputs.extend(source.inputs if source is not None else [value])
            with rewriter.building(node) as op:
                [joined] = op.copy(node, inputs)
                replaced = list(dict.fromkeys(n for n in inner if n is not None))
                rewriter.replace([*replaced, node], op.nodes, [(node.outputs[0], joined)])
        return rewriter.changes


def _inner(value: ir.Value | None, node: ir.Node, axis: int) -> ir.Node | None:
    producer = value.producer() if value is not None else None
    if value is None or producer is None or not is_op(producer, "Concat") or producer.graph is not node.graph:
        return None
    if has_references(producer) or producer.attributes.get_int("axis", 0) != axis:
        return None
    return producer if only_user(value) is node else None
