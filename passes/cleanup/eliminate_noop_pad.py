"""The pass `eliminate-noop-pad`."""

from __future__ import annotations

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["EliminateNoopPad"]


class EliminateNoopPad(Pass):
    """Pad(x) by nothing → x"""

    name = "eliminate-noop-pad"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Pad"):
            source = node.inputs[0]
            if source is None or has_references(node):
                continue
            given = node.attributes.get_ints("pads")
            pads = constant(model, node.inputs[1], at_most=64) if len(node.inputs) > 1 else None
            if (given is not None and not any(given)) or (pads is not None and not pads.any()):
                bypass(rewriter, node, source, "pads by nothing")
        return rewriter.changes
