"""The pass `resolve-pow`."""

from __future__ import annotations

import math

import onnx_ir as ir

from fuseline.engine.constants import constant, scalar
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["ResolvePow"]

_EXPONENTS = (0.5, -0.5, 1.0, -1.0, 2.0, 3.0, 4.0)


class ResolvePow(LocalRewrite):
    """Pow(x, n) → products, roots and quotients for small n; Pow(c, x) → Exp(x·ln c)

    The gradient of Pow is slow, wrong at 0, and knows nothing of its exponent. Where an exponent is or may be
    0, the base becomes 1: the power is 1 either way, and 0·0⁻¹ is no gradient.
    """

    name = "resolve-pow"
    operators = ("Pow",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        base, exponent = node.inputs
        if base is None or base.dtype is None or not base.dtype.is_floating_point():
            return False
        fixed, number = scalar(model, exponent), scalar(model, base)
        if fixed is not None:
            more = _more_axes(model, base, exponent)
            if more is None:
                return f"the exponent {fixed} may give the result more axes than {base.name!r} has"
            if fixed == 0.0:
                return not _is_guarded(base, exponent)
            return fixed in _EXPONENTS or more > 0
        if number is None:
            return _may_be_zero(model, exponent) and not _is_guarded(base, exponent)
        more = _more_axes(model, exponent, base)
        if more is None or more > 0:
            return f"the base {number} may give the result more axes than its exponent has"
        return number > 0 or f"the base {number} has no logarithm"

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x, exponent = node.inputs
        power = scalar(op.model, exponent)
        if power is None:
            base = scalar(op.model, x)
            return op.Exp(op.Mul(exponent, math.log(base))) if base is not None else _guarded(op, x, exponent)
        if power == 0.0:
            return _guarded(op, x, exponent)
        made = _power(op, x, power)
        more = _more_axes(op.model, x, exponent) or 0
        return op.Unsqueeze(made, list(range(more))) if more > 0 else made


def _may_be_zero(model: Model, exponent: ir.Value | None) -> bool:
    content = constant(model, exponent)
    return content is None or not content.all()


def _guarded(op: Builder, x: ir.Value | None, exponent: ir.Value | None) -> ir.Value:
    power: ir.Value = op.Pow(op.Where(op.Equal(exponent, 0.0), 1.0, x), exponent)
    return power


def _is_guarded(base: ir.Value, exponent: ir.Value | None) -> bool:
    choice = base.producer()
    if choice is None or not is_op(choice, "Where"):
        return False
    condition = choice.inputs[0].producer() if choice.inputs[0] is not None else None
    return condition is not None and is_op(condition, "Equal") and condition.inputs[0] is exponent


def _more_axes(model: Model, value: ir.Value | None, number: ir.Value | None) -> int | None:
    """How many axes a constant of one element has more than the value; None where that is not known."""
    content, rank = constant(model, number, at_most=1), rank_of(value)
    if content is None or (rank is None and content.ndim):
        return None
    return content.ndim - (rank or 0)


def _power(op: Builder, x: ir.Value | None, power: float) -> ir.Value:
    match power:
        case 0.5:
            return op.Sqrt(x)
        case -0.5:
            return op.Div(1.0, op.Sqrt(x))
        case 1.0:
            return op.Identity(x)
        case -1.0:
            return op.Div(1.0, x)
        case 2.0:
            return op.Mul(x, x)
        case 3.0:
            return op.Mul(op.Mul(x, x), x)
        case 4.0:
            square = op.Mul(x, x)
            return op.Mul(square, square)
    return op.Pow(x, power)
