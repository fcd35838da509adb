"""The pass `decompose-normalization`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, opset_of, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["DecomposeNormalization"]

_SCALE_PER_CHANNEL = 21


class DecomposeNormalization(LocalRewrite):
    """InstanceNormalization, GroupNormalization, MeanVarianceNormalization, LpNormalization → primitives"""

    name = "decompose-normalization"
    operators = (
        "InstanceNormalization",
        "GroupNormalization",
        "MeanVarianceNormalization",
        "LpNormalization",
    )

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        if node.op_type == "GroupNormalization" and opset_of(model, node) < _SCALE_PER_CHANNEL:
            return f"before opset {_SCALE_PER_CHANNEL} it has a scale for each group, not each channel"
        return rank_of(node.inputs[0]) is not None or "the number of axes is not known"

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x = node.inputs[0]
        assert x is not None
        match node.op_type:
            case "LpNormalization":
                return _lp(op, node, x)
            case "MeanVarianceNormalization":
                return _standardized(op, x, list(attribute(node, "axes", [0, 2, 3])), 1e-9)
            case "InstanceNormalization":
                return _instance(op, node, x)
        return _group(op, node, x)


def _standardized(op: Builder, x: ir.Value, axes: list[int], epsilon: float) -> ir.Value:
    over = np.array(axes, np.int64)
    centred = op.Sub(x, _mean(op, x, over))
    variance = _mean(op, op.Mul(centred, centred), over)
    return op.Div(centred, op.Sqrt(op.Add(variance, epsilon)))


def _mean(op: Builder, x: ir.Value, axes: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> ir.Value:
    return op.ReduceMean(x, axes, keepdims=1)


def _affine(op: Builder, y: ir.Value, scale: ir.Value | None, bias: ir.Value | None, rank: int) -> ir.Value:
    """y·scale + bias, both along axis 1."""
    trailing = np.arange(1, rank - 1)
    scaled = op.Mul(y, op.Unsqueeze(scale, trailing) if rank > 2 else scale)
    return op.Add(scaled, op.Unsqueeze(bias, trailing) if rank > 2 else bias)


def _instance(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    rank = rank_of(x)
    assert rank is not None
    y = _standardized(op, x, list(range(2, rank)), float(attribute(node, "epsilon", 1e-5)))
    return _affine(op, y, node.inputs[1], node.inputs[2], rank)


def _group(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    rank, groups = rank_of(x), int(attribute(node, "num_groups", 1))
    assert rank is not None
    grouped = op.Reshape(x, np.array([0, groups, -1]))
    y = op.Reshape(_standardized(op, grouped, [2], float(attribute(node, "epsilon", 1e-5))), op.Shape(x))
    scale, bias = node.inputs[1], node.inputs[2]
    if op.model.opset() >= 21:
        return _affine(op, y, scale, bias, rank)
    # Before opset 21 scale and bias belong to groups.
    channels = op.Reshape(y, np.array([0, groups, -1]))
    column = np.array([groups, 1])
    done = op.Add(op.Mul(channels, op.Reshape(scale, column)), op.Reshape(bias, column))
    return op.Reshape(done, op.Shape(x))


def _lp(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    axis = np.array([attribute(node, "axis", -1)])
    if attribute(node, "p", 2) == 1:
        return op.Div(x, op.ReduceSum(op.Abs(x), axis, keepdims=1))
    return op.Div(x, op.Sqrt(op.ReduceSum(op.Mul(x, x), axis, keepdims=1)))
