"""The pass `native-dropout`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import scalar
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_standard
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.training.dropout import next_stream, seed_input
from fuseline.passes.training.native import EMPTY

__all__ = ["NativeDropout"]


class NativeDropout(Pass):
    """Dropout in training mode → fuseline.FusedBiasDropoutAdd, masked by the input `dropout.seed`

    Nothing is stored for the backward pass, and the same seed gives the same mask on any runtime.
    """

    name = "native-dropout"
    phase = "pre-gradient"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in list(model.graph):
            if node.op_type != "Dropout" or not is_standard(node):
                continue
            ratio = scalar(model, node.inputs[1]) if len(node.inputs) > 1 else 0.5
            if ratio is None:
                rewriter.reject(node, "its ratio is not constant")
            elif any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
                rewriter.reject(node, "its mask is used elsewhere")
            elif rewriter.permit(node, self.summary()):
                _exchange(model, rewriter, node, ratio)
        return rewriter.changes


def _exchange(model: Model, rewriter: Rewriter, node: ir.Node, ratio: float) -> None:
    op = rewriter.builder(node)
    inputs = (node.inputs[0], EMPTY, EMPTY, np.array([ratio], np.float32), seed_input(model))
    y, _ = op.FusedBiasDropoutAdd(*inputs, _outputs=2, _domain="fuseline", stream=next_stream(model))
    rewriter.replace([node], op.nodes, [(node.outputs[0], y)])
