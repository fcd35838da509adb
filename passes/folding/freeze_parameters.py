"""The pass `freeze-parameters`."""

from __future__ import annotations

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["FreezeParameters"]


class FreezeParameters(Pass):
    """trainable parameters → constants, so that an inference pipeline may fold them"""

    name = "freeze-parameters"
    phase = "inference"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for parameter in [p.name for p in model.parameters if p.trainable]:
            if rewriter.permit(parameter, "parameter is a constant from here on"):
                model.parameters.set_trainable([parameter], False)
        return rewriter.changes
