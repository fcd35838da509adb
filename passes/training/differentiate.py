"""The pass `differentiate`."""

from __future__ import annotations

from dataclasses import replace

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.training.gradients import build_gradients, loss_name, reachable_values

__all__ = ["Differentiate"]


class Differentiate(Pass):
    """graph with a loss → the same graph with one output `<value>_grad` per trainable value

    The gradient of the loss becomes the scalar input `loss_grad`. Trainable values that the loss does not
    depend on get no gradient; the facts list them as `untrained`.
    """

    name = "differentiate"
    phase = "pre-gradient"
    ensures = (Property.DIFFERENTIATED, Property.TRAINING)
    invalidates = (Property.TRAINABLE,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        if not rewriter.permit("model", self.summary()):
            return 0
        loss = loss_name(model)
        reachable = reachable_values(model, loss)
        untrained = [v for v in model.parameters.trainable_values() if v not in reachable]
        before = len(model.graph)
        model.ir = build_gradients(model).ir
        model.facts.training = replace(model.facts.training, loss=loss, untrained=tuple(untrained))
        rewriter.count("gradient nodes", len(model.graph) - before)
        rewriter.count("values without a gradient", len(untrained))
        return rewriter.changes
