"""The pass `feed-parameters`."""

from __future__ import annotations

from dataclasses import replace

from fuseline.engine.execution.weights import is_state, weights_as_inputs
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["FeedParameters"]


class FeedParameters(Pass):
    """parameters and buffers as initializers → the same as inputs, fed at every run

    Values that the step overwrites become inputs too. Whoever runs the graph owns the memory.
    """

    name = "feed-parameters"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        permitted = weights_as_inputs(
            model.ir, lambda name, _: is_state(model, name) and rewriter.permit(name, self.summary())
        )
        model.facts.interface = replace(model.facts.interface, fed=True)
        rewriter.count("weights", len(permitted))
        return rewriter.changes
