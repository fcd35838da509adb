"""The pass `convert-opset`."""

from __future__ import annotations

from fuseline.engine.conversion import MAXIMUM_IR, convert_opset, lower_ir
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["ConvertOpset"]


class ConvertOpset(Pass):
    """opset n, IR m → opset `to`, IR ≤ 10 (what ONNX Runtime 1.19.2 takes)

    Converts the default domain up or down. Functions must be inlined first. With `only-up` a model that is
    newer than `to` is left as it is. What the other opset can only say otherwise is rewritten or refused.
    """

    name = "convert-opset"
    to: int = 18
    only_up: bool = False

    def run(self, model: Model, rewriter: Rewriter) -> int:
        source = model.opset()
        if model.ir.ir_version > MAXIMUM_IR and rewriter.permit(
            "model", f"IR {model.ir.ir_version} → {MAXIMUM_IR}"
        ):
            lower_ir(model)
        wanted = source < self.to or (source > self.to and not self.only_up)
        if wanted and rewriter.permit("model", f"opset {source} → {self.to}"):
            convert_opset(model, self.to)
        return rewriter.changes
