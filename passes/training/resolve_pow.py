"""The pass `resolve-pow`."""

from __future__ import annotations

import math

import onnx_ir as ir

from fuseline.engine.constants import scalar
from fuseline.engine.model import Model
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["ResolvePow"]

_EXPONENTS = (0.5, -0.5, 1.0, -1.0, 2.0, 3.0, 4.0)


class ResolvePow(LocalRewrite):
    """Pow(x, n) → products, roots and quotients for small n; Pow(c, x) → Exp(x·ln c)

    The gradient of Pow is slow, wrong at 0, and knows nothing of its exponent.
    """

    name = "resolve-pow"
    operators = ("Pow",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        base, exponent = node.inputs
        if base is None or base.dtype is None or not base.dtype.is_floating_point():
            return False
        fixed = scalar(model, exponent)
        if fixed is not None:
            return (
                fixed in _EXPONENTS
                and exponent is not None
                and (exponent.shape is None or len(exponent.shape) == 0)
            )
        number = scalar(model, base)
        if number is not None:
            return number > 0 or f"the base {number} has no logarithm"
        return False

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x, exponent = node.inputs
        power = scalar(op.model, exponent)
        if power is None:
            base = scalar(op.model, x)
            assert base is not None
            return op.Exp(op.Mul(exponent, math.log(base)))
        match power:
            case 0.5:
                return op.Sqrt(x)
            case -0.5:
                return op.Div(1.0, op.Sqrt(x))
            case 1.0:
                return op.Identity(x)
            case -1.0:
                return op.Div(1.0, x)
        square = op.Mul(x, x)
        if power == 2:
            return square
        return op.Mul(square, x if power == 3 else square)
