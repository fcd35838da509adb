"""The pass `separate-repeated-inputs`."""

from __future__ import annotations

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["SeparateRepeatedInputs"]


class SeparateRepeatedInputs(Pass):
    """op(w, w) → op(w, Identity(w)) for a trainable w

    The gradient builder would define the gradient of w twice.
    """

    name = "separate-repeated-inputs"
    phase = "pre-gradient"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for name in model.parameters.trainable_values():
            value = model.graph.initializers.get(name)
            seen = set()
            for user, index in list(value.uses()) if value is not None else []:
                if user not in seen:
                    seen.add(user)
                elif rewriter.permit(user, f"reads {name!r} twice"):
                    op = rewriter.builder(user)
                    copy = op.Identity(value)
                    rewriter.insert(user, op.nodes)
                    user.replace_input_with(index, copy)
        return rewriter.changes
