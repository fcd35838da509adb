"""The pass `eliminate-noop-dropout`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.constants import constant, scalar
from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, nodes_of, opset_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["EliminateNoopDropout"]


class EliminateNoopDropout(Pass):
    """Dropout(x) that is not training, or drops nothing → x

    A Dropout whose training mode is on, or is fed at run time, stays; so does one whose mask is used.
    """

    name = "eliminate-noop-dropout"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Dropout"):
            source = node.inputs[0]
            if source is None or has_references(node) or not _passes_through(model, node):
                continue
            if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
                rewriter.reject(node, "its mask is used")
                continue
            bypass(rewriter, node, source, "drops nothing")
        return rewriter.changes


def _passes_through(model: Model, node: ir.Node) -> bool:
    version = opset_of(model, node)
    if version < 7:
        return bool(node.attributes.get_int("is_test", 0))
    if version < 12:
        return True
    if len(node.inputs) > 1 and scalar(model, node.inputs[1]) == 0:
        return True
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    training = constant(model, node.inputs[2], at_most=1)
    return training is not None and not training.any()
