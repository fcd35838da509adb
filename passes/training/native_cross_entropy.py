"""The pass `native-cross-entropy`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["NativeCrossEntropy"]

_REDUCTIONS = {"mean": 0, "sum": 1}
# The operator means by "none to ignore" a label that cannot occur.
_NONE = -(2**31)


class NativeCrossEntropy(LocalRewrite):
    """SoftmaxCrossEntropyLoss → fuseline.FusedCrossEntropy, which keeps no tensor of probabilities"""

    name = "native-cross-entropy"
    operators = ("SoftmaxCrossEntropyLoss",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        scores, labels = node.inputs[0], node.inputs[1]
        assert scores is not None
        assert labels is not None
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            return "it weights the classes"
        if attribute(node, "reduction", "mean") not in _REDUCTIONS:
            return "it does not reduce"
        if rank_of(scores) != 2:
            return "the classes are not known to be on the last axis"
        if labels.dtype != ir.DataType.INT64 or scores.dtype != ir.DataType.FLOAT:
            return f"its types are {scores.dtype} and {labels.dtype}, not float32 and int64"
        if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
            return "its log-probabilities are used elsewhere"
        return True

    def build(self, op: Builder, node: ir.Node) -> Sequence[ir.Value | None]:
        scores, labels = node.inputs[0], node.inputs[1]
        loss, *_ = op.FusedCrossEntropy(
            scores,
            labels,
            _outputs=3,
            _domain="fuseline",
            ignore_index=attribute(node, "ignore_index", _NONE),
            reduction=_REDUCTIONS[attribute(node, "reduction", "mean")],
        )
        return [loss]
