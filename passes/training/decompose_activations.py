"""The pass `decompose-activations`."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from fuseline.engine.nodes import attribute
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["DecomposeActivations"]

Formula = Callable[[Builder, ir.Node, ir.Value], ir.Value]


class DecomposeActivations(LocalRewrite):
    """Elu, Selu, Celu, HardSigmoid, HardSwish, Mish, PRelu, ThresholdedRelu, Shrink → primitives

    Where the function has a corner, the gradient there is torch's.
    """

    name = "decompose-activations"
    operators = (
        "Elu",
        "Selu",
        "Celu",
        "HardSigmoid",
        "HardSwish",
        "Mish",
        "PRelu",
        "ThresholdedRelu",
        "Shrink",
    )

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x = node.inputs[0]
        assert x is not None
        return _FORMULAS[node.op_type](op, node, x)


def _positive(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """max(x, 0) and min(x, 0); at 0 the gradient belongs to the second."""
    above, zero = op.Greater(x, 0.0), op.constant(0.0)
    return op.Where(above, x, zero), op.Where(above, zero, x)


def _elu(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    positive, negative = _positive(op, x)
    bent = op.Sub(op.Exp(negative), 1.0)
    return op.Add(positive, op.Mul(bent, float(attribute(node, "alpha", 1.0))))


def _selu(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    positive, negative = _positive(op, x)
    alpha = float(attribute(node, "alpha", 1.67326319217681884765625))
    bent = op.Mul(op.Sub(op.Exp(negative), 1.0), alpha)
    return op.Mul(op.Add(positive, bent), float(attribute(node, "gamma", 1.05070102214813232421875)))


def _celu(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    positive, negative = _positive(op, x)
    alpha = float(attribute(node, "alpha", 1.0))
    bent = op.Sub(op.Exp(op.Div(negative, alpha)), 1.0)
    return op.Add(positive, op.Mul(bent, alpha))


def _hard_sigmoid(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    alpha, beta = float(attribute(node, "alpha", 0.2)), float(attribute(node, "beta", 0.5))
    return op.Clip(op.Add(op.Mul(x, alpha), beta), 0.0, 1.0)


def _hard_swish(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    return op.Mul(x, op.Clip(op.Add(op.Mul(x, 1 / 6), 0.5), 0.0, 1.0))


def _mish(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    return op.Mul(x, op.Tanh(op.Softplus(x)))


def _prelu(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    positive, negative = _positive(op, x)
    return op.Add(positive, op.Mul(negative, node.inputs[1]))


def _thresholded_relu(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    return op.Where(op.Greater(x, float(attribute(node, "alpha", 1.0))), x, 0.0)


def _shrink(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    edge, bias = float(attribute(node, "lambd", 0.5)), float(attribute(node, "bias", 0.0))
    zero = op.constant(0.0)
    above = op.Where(op.Greater(x, edge), op.Sub(x, bias), zero)
    return op.Add(above, op.Where(op.Less(x, -edge), op.Add(x, bias), zero))


_FORMULAS: dict[str, Formula] = {
    "Elu": _elu,
    "Selu": _selu,
    "Celu": _celu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Mish": _mish,
    "PRelu": _prelu,
    "ThresholdedRelu": _thresholded_relu,
    "Shrink": _shrink,
}
