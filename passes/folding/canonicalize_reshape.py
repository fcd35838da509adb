"""The pass `canonicalize-reshape`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.analysis import Contents
from fuseline.engine.constants import is_constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, is_op
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.folding.reshape_target import reshape_target

__all__ = ["CanonicalizeReshape"]


class CanonicalizeReshape(Pass):
    """Reshape(x, Concat(Gather(Shape(x), 0), …, 12)) → Reshape(x, [0, −1, 12])

    The computed target becomes constant where at most one of its dimensions is neither a number nor taken
    over from x at the same place; the element count decides that one.
    """

    name = "canonicalize-reshape"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        values = rewriter.analysis(Contents)
        for graph in list(model.graphs()):
            for node in graph:
                values.visit(node)
                if not is_op(node, "Reshape") or has_references(node) or len(node.inputs) < 2:
                    continue
                target = _constant_target(model, node, values, rewriter)
                if target is not None and rewriter.permit(node, f"target is always {target}"):
                    op = rewriter.builder(node)
                    node.replace_input_with(1, op.constant(target, "target"))
                    rewriter.insert(node, op.nodes, replaces=(node,))
        return rewriter.changes


def _constant_target(model: Model, node: ir.Node, values: Contents, rewriter: Rewriter) -> list[int] | None:
    shape = node.inputs[1]
    if is_constant(model, shape) or bool(node.attributes.get_int("allowzero", 0)):
        return None
    wanted = values[shape]
    if wanted is None:
        return None
    target = reshape_target(dims_of(node.inputs[0]), wanted.items)
    if target is None:
        rewriter.reject(node, f"the target {list(wanted.items)} has several open dimensions")
    return target
