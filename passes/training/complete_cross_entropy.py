"""The pass `complete-cross-entropy`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["CompleteCrossEntropy"]


class CompleteCrossEntropy(LocalRewrite):
    """SoftmaxCrossEntropyLoss → SoftmaxCrossEntropyLoss with the log-probabilities as second output

    Its gradient is made from them.
    """

    name = "complete-cross-entropy"
    operators = ("SoftmaxCrossEntropyLoss",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        return len(node.outputs) < 2 or not node.outputs[1].name

    def build(self, op: Builder, node: ir.Node) -> Sequence[ir.Value]:
        return op.copy(node, node.inputs, outputs=2)
