"""The pass `drop-loss`."""

from __future__ import annotations

from dataclasses import replace

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.pruning import keep_only
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["DropLoss"]


class DropLoss(Pass):
    """graph with labels and a loss → the graph without, ending in the model's other outputs"""

    name = "drop-loss"
    # Gradients without the loss that they are of would belong to nothing.
    forbids = (Property.DIFFERENTIATED,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        loss, interface = model.facts.training.loss, model.facts.interface
        kept = [v for v in model.graph.outputs if v.name != loss]
        if loss is None or len(kept) == len(model.graph.outputs) or not rewriter.permit(loss, self.summary()):
            return rewriter.changes
        before = {v.name for v in model.graph.inputs}
        keep_only(model, rewriter, kept)
        model.facts.training = replace(model.facts.training, loss=None)
        outputs = tuple(name for name in interface.outputs if name != loss)
        # What only the loss read is gone; labels that the decoder's inputs are made of stay.
        gone = before - {v.name for v in model.graph.inputs}
        inputs = {n: i for n, i in interface.inputs.items() if n not in gone}
        model.facts.interface = replace(interface, inputs=inputs, labels=(), outputs=outputs)
        return rewriter.changes
