"""The pass `eliminate-identity`."""

from __future__ import annotations

from fuseline.engine.model import Model
from fuseline.engine.nodes import nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["EliminateIdentity"]


class EliminateIdentity(Pass):
    """Identity(x) → x

    An Identity stays where it gives a graph output its name and the value cannot: because it is an input, an
    initializer, a value of an outer graph or an output itself.
    """

    name = "eliminate-identity"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Identity"):
            source = node.inputs[0]
            if source is not None:
                bypass(rewriter, node, source, "identity")
        return rewriter.changes
