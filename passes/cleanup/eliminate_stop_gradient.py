"""The pass `eliminate-stop-gradient`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import nodes_of
from fuseline.engine.operators.gradient import STOP_GRADIENT
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["EliminateStopGradient"]


class EliminateStopGradient(Pass):
    """OptionalGetElement(tensor) → tensor, where no gradient will be built any more

    The exporter writes torch's `detach` and `no_grad` as this identity, through which no gradient flows. Once
    the gradient stands, or where none is wanted, it has done its work.
    """

    name = "eliminate-stop-gradient"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        needed = model.training and not model.has(Property.DIFFERENTIATED)
        for node in nodes_of(model, STOP_GRADIENT):
            source = node.inputs[0] if node.inputs else None
            if source is None or (source.type is not None and not _is_tensor(source)):
                continue
            if source.type is None:
                rewriter.reject(node, "its input may be an optional value")
            elif needed:
                rewriter.reject(node, "the gradient that it stops is still to be built")
            else:
                bypass(rewriter, node, source, "stop of a gradient")
        return rewriter.changes


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.TensorType)
