"""The pass `inline-functions`."""

from __future__ import annotations

from onnx_ir.passes.common import InlinePass

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["InlineFunctions"]


class InlineFunctions(Pass):
    """call of a model-local function → its body

    Fusions and gradients look at operators, not at calls. Names of the inlined nodes are made unique.
    """

    name = "inline-functions"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        calls = [n for n in model.nodes() if n.op_identifier() in model.ir.functions]
        if not model.ir.functions or not rewriter.permit("model", f"inline {len(calls)} calls"):
            return 0
        rewriter.count("calls", len(calls))
        model.ir = InlinePass()(model.ir).model
        model.name_everything()
        return rewriter.changes
