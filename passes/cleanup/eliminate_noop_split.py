"""The pass `eliminate-noop-split`."""

from __future__ import annotations

from fuseline.engine.model import Model
from fuseline.engine.nodes import nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["EliminateNoopSplit"]


class EliminateNoopSplit(Pass):
    """Split(x) into one part → x"""

    name = "eliminate-noop-split"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Split"):
            source = node.inputs[0]
            if source is not None and len(node.outputs) == 1:
                bypass(rewriter, node, source, "one part")
        return rewriter.changes
