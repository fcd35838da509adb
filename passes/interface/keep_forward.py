"""The pass `keep-forward`."""

from __future__ import annotations

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.pruning import keep_only
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.training.cut import Cut

__all__ = ["KeepForward"]


class KeepForward(Pass):
    """graph that takes the gradients of its outputs → its part up to the outputs

    What the other part, `keep-backward`, reads of this one becomes an output.
    """

    name = "keep-forward"
    phase = "post-gradient"
    invalidates = (Property.DIFFERENTIATED,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        cut = Cut.of(model)
        if rewriter.permit("model", self.summary()):
            keep_only(model, rewriter, [*cut.outputs, *(v for v in cut.crossing if v not in cut.outputs)])
        return rewriter.changes
