"""The pass `drop-unused-results`."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.operators import record
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["DropUnusedResults"]


class DropUnusedResults(Pass):
    """y, statistics = FusedLayerNorm(…) → y = FusedLayerNorm(…), where nobody reads what may be left out

    What operators keep for a gradient that is not taken, as in layers that are not trained, is neither
    written nor held. Only operators that declare which of their results may be left out are looked at.
    """

    name = "drop-unused-results"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in model.nodes():
            unused = _unused(node)
            if unused and rewriter.permit(node, self.summary()):
                for value in unused:
                    value.name = ""
                    value.shape = value.type = None
        return rewriter.changes


def _unused(node: ir.Node) -> list[ir.Value]:
    operator = record(node)
    if operator is None or operator.declared is None:
        return []
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return [
        value
        for value, port in zip(node.outputs, operator.declared.outputs, strict=False)
        if port.option == optional and value.name and not value.uses() and not value.is_graph_output()
    ]
