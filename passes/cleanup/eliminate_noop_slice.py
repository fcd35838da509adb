"""The pass `eliminate-noop-slice`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.analysis import Contents
from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of, equal
from fuseline.engine.shapes.output_dims import output_dims

__all__ = ["EliminateNoopSlice"]


class EliminateNoopSlice(Pass):
    """Slice of all of x, forwards → x"""

    name = "eliminate-noop-slice"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        values = rewriter.analysis(Contents)
        for node in nodes_of(model, "Slice"):
            source = node.inputs[0]
            if source is None or not _forwards(model, node):
                continue
            if equal(dims_of(source), output_dims(values, node)):
                bypass(rewriter, node, source, "takes everything")
        return rewriter.changes


def _forwards(model: Model, node: ir.Node) -> bool:
    if len(node.inputs) < 5 or node.inputs[4] is None:
        return True
    steps = constant(model, node.inputs[4], at_most=64)
    return steps is not None and bool((steps > 0).all())
