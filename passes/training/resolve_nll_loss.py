"""The pass `resolve-nll-loss`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["ResolveNllLoss"]


class ResolveNllLoss(LocalRewrite):
    """NegativeLogLikelihoodLoss → −GatherElements(scores, labels), reduced over what is not ignored"""

    name = "resolve-nll-loss"
    operators = ("NegativeLogLikelihoodLoss",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        return True

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        scores, labels, *rest = node.inputs
        reduction = attribute(node, "reduction", "mean")
        ignored = op.Equal(labels, op.constant(np.array(attribute(node, "ignore_index", -(2**31)))))
        safe = op.Where(ignored, np.array(0), labels)
        axis = np.array([1])
        picked = op.Squeeze(op.GatherElements(scores, op.Unsqueeze(safe, axis), axis=1), axis)
        weight = op.Where(ignored, 0.0, op.Gather(rest[0], safe) if rest and rest[0] else 1.0)
        losses = op.Neg(op.Mul(picked, weight))
        if reduction == "none":
            return losses
        total = op.ReduceSum(losses, keepdims=0)
        if reduction == "sum":
            return total
        whole = op.Expand(weight, op.Shape(labels))
        return op.Div(total, op.ReduceSum(whole, keepdims=0))
