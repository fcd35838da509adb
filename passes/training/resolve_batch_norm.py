"""The pass `resolve-batch-norm`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["ResolveBatchNorm"]


class ResolveBatchNorm(LocalRewrite):
    """BatchNormalization in training → com.microsoft.BatchNormInternal; in evaluation → x·a + b"""

    name = "resolve-batch-norm"
    operators = ("BatchNormalization",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        if attribute(node, "training_mode", 0):
            return True
        return rank_of(node.inputs[0]) is not None or "the number of axes is not known"

    def build(self, op: Builder, node: ir.Node) -> Sequence[ir.Value]:
        epsilon = float(attribute(node, "epsilon", 1e-5))
        if not attribute(node, "training_mode", 0):
            return [_affine(op, node, epsilon)]
        made = op.BatchNormInternal(
            *node.inputs,
            _outputs=5,
            _domain="com.microsoft",
            epsilon=epsilon,
            momentum=float(attribute(node, "momentum", 0.9)),
            training_mode=1,
        )
        return made[: len(node.outputs)]


def _affine(op: Builder, node: ir.Node, epsilon: float) -> ir.Value:
    x, scale, bias, mean, variance = node.inputs
    rank = rank_of(x)
    assert rank is not None
    trailing = np.arange(1, rank - 1)
    factor = op.Div(scale, op.Sqrt(op.Add(variance, epsilon)))
    shift = op.Sub(bias, op.Mul(mean, factor))
    if rank > 2:
        factor, shift = op.Unsqueeze(factor, trailing), op.Unsqueeze(shift, trailing)
    return op.Add(op.Mul(x, factor), shift)
