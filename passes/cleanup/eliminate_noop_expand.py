"""The pass `eliminate-noop-expand`."""

from __future__ import annotations

from fuseline.engine.analysis import Contents
from fuseline.engine.model import Model
from fuseline.engine.nodes import nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of, equal
from fuseline.engine.shapes.output_dims import output_dims

__all__ = ["EliminateNoopExpand"]


class EliminateNoopExpand(Pass):
    """Expand or Tile of x to the shape of x → x"""

    name = "eliminate-noop-expand"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        values = rewriter.analysis(Contents)
        for node in nodes_of(model, "Expand", "Tile"):
            source = node.inputs[0]
            if source is not None and equal(dims_of(source), output_dims(values, node)):
                bypass(rewriter, node, source, "shape stays the same")
        return rewriter.changes
