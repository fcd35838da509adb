"""Operators that treat each element by itself: arithmetic, functions of one variable, logic, comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuseline.engine.operators import costs, positions
from fuseline.engine.operators import evaluation as by_numpy
from fuseline.engine.operators.gradient import (
    BUILT_IN,
    STOP_GRADIENT,
    Defined,
    Gradient,
    GradientNode,
    NoGradient,
    Prepared,
    defined,
)
from fuseline.engine.operators.operator import Operator, Trait
from fuseline.engine.shapes import dims, rules
from fuseline.engine.shapes import value_rules as content

__all__ = ["ELEMENTWISE"]

_EACH = Trait.ELEMENTWISE
_SYMMETRIC = Trait.ELEMENTWISE | Trait.COMMUTATIVE
_GROUPED = _SYMMETRIC | Trait.ASSOCIATIVE
_OVER = (0,)
"""Few of ONNX Runtime's kernels write over their operand; these were seen to do so."""
_CHEAP, _TRANSCENDENTAL = costs.per_element(1), costs.per_element(10)


def _each(name: str, **more: Any) -> Operator:
    fields: dict[str, Any] = {
        "traits": _EACH,
        "shape": rules.same,
        "positions": positions.elementwise,
        "cost": _CHEAP,
    }
    return Operator(name=name, **(fields | more))


def _function(name: str, gradient: Gradient | None = None, **more: Any) -> Operator:
    """A function of one variable that is not cheap."""
    fields = {"cost": _TRANSCENDENTAL, "gradient": gradient if gradient is not None else BUILT_IN}
    return _each(name, **(fields | more))


def _binary(name: str, traits: Trait = _EACH, gradient: Gradient = BUILT_IN, **more: Any) -> Operator:
    fields: dict[str, Any] = {"traits": traits, "shape": rules.elementwise}
    return _each(name, gradient=gradient, **(fields | more))


def _decision(name: str, function: Any, traits: Trait = _EACH, **more: Any) -> Operator:
    """A comparison: no gradient flows through it."""
    fields = {"shape": rules.comparison, "evaluate": by_numpy.binary(function)}
    return _each(name, traits=traits | Trait.DISCRETE, **(fields | more))


def _chain(*derivative: GradientNode) -> Defined:
    """The gradient of y = f(x), given nodes that make f′ as `d`."""
    return defined(*derivative, GradientNode("Mul", ("GO(0)", "d")))


def _node(op_type: str, *inputs: str | float, to: str) -> GradientNode:
    return GradientNode(op_type, inputs, (to,))


_SQUARE = _node("Mul", "I(0)", "I(0)", to="s")
_FLAT = defined(GradientNode("Mul", ("GO(0)", 0.0)))


def _one_over_root(operator: str, left: str | float, right: str | float, sign: float = 1.0) -> Defined:
    """±1/√(left ± right), where "s" is x²."""
    return _chain(
        _SQUARE,
        _node(operator, left, right, to="b"),
        _node("Sqrt", "b", to="r"),
        _node("Div", sign, "r", to="d"),
    )


_ARITHMETIC = (
    _binary("Add", _GROUPED, evaluate=by_numpy.binary(np.add), content=content.elementwise(dims.add)),
    _binary("Sub", evaluate=by_numpy.binary(np.subtract), content=content.elementwise(dims.subtract)),
    _binary("Mul", _GROUPED, evaluate=by_numpy.binary(np.multiply),
            content=content.elementwise(dims.multiply)),
    _binary("Div", evaluate=by_numpy.div, content=content.elementwise(content.divide)),
    _binary("Pow", cost=_TRANSCENDENTAL),
    _binary("Min", _GROUPED, evaluate=by_numpy.variadic(np.minimum)),
    _binary("Max", _GROUPED, evaluate=by_numpy.variadic(np.maximum)),
    _binary("Mod", gradient=NoGradient("write it as x − y·floor(x/y)")),
    _binary("Sum", _GROUPED, Prepared()),
    _binary("Mean", _EACH, Prepared()),
    _binary("PRelu", gradient=Prepared()),
    _each("Where", shape=rules.where, indices=frozenset([0]), gradient=BUILT_IN, cost=costs.where,
          evaluate=by_numpy.where, content=content.where),
)  # fmt: skip

_FUNCTIONS = (
    _each("Identity", traits=_EACH | Trait.MOVES | Trait.VIEW, gradient=BUILT_IN, cost=costs.nothing,
          evaluate=by_numpy.identity, content=content.same),
    _each(STOP_GRADIENT, traits=_EACH | Trait.DISCRETE, cost=costs.nothing, evaluate=by_numpy.identity),
    _each("Neg", gradient=BUILT_IN, evaluate=by_numpy.unary(np.negative)),
    _each("Abs", gradient=BUILT_IN, evaluate=by_numpy.unary(np.abs)),
    _each("Sign", gradient=_FLAT),
    _each("Floor", gradient=_FLAT, evaluate=by_numpy.unary(np.floor)),
    _each("Ceil", gradient=_FLAT, evaluate=by_numpy.unary(np.ceil)),
    _each("Round", gradient=_FLAT),
    _each("Reciprocal", gradient=BUILT_IN, evaluate=by_numpy.unary(np.reciprocal)),
    _each("Sqrt", gradient=BUILT_IN, evaluate=by_numpy.unary(np.sqrt)),
    _function("Exp"),
    _function("Log"),
    _function("Erf"),
    _function("Sin"),
    _function("Cos"),
    _function("Tan", _chain(_node("Mul", "O(0)", "O(0)", to="s"), _node("Add", "s", 1.0, to="d"))),
    _function("Atan", _chain(_SQUARE, _node("Add", "s", 1.0, to="b"), _node("Div", 1.0, "b", to="d"))),
    _function("Asin", _one_over_root("Sub", 1.0, "s")),
    _function("Acos", _one_over_root("Sub", 1.0, "s", sign=-1.0)),
    _function("Sinh", _chain(_node("Cosh", "I(0)", to="d"))),
    _function("Cosh", _chain(_node("Sinh", "I(0)", to="d"))),
    _function("Asinh", _one_over_root("Add", "s", 1.0)),
    _function("Acosh", _one_over_root("Sub", "s", 1.0)),
    _function("Atanh", _chain(_SQUARE, _node("Sub", 1.0, "s", to="b"), _node("Div", 1.0, "b", to="d"))),
)  # fmt: skip

_ACTIVATIONS = (
    _each("Relu", gradient=BUILT_IN, in_place=_OVER),
    _each("LeakyRelu", gradient=BUILT_IN, in_place=_OVER),
    _each("Clip", traits=_EACH | Trait.MOVES, gradient=BUILT_IN, indices=frozenset([1, 2]), in_place=_OVER,
          moved={"min": (1, 11), "max": (2, 11)}),
    _function("Sigmoid", in_place=_OVER),
    _function("Tanh", in_place=_OVER),
    _function("Gelu"),
    _function("Softplus", _chain(_node("Sigmoid", "I(0)", to="d")), in_place=_OVER),
    _function("Softsign", _chain(_node("Abs", "O(0)", to="a"), _node("Sub", 1.0, "a", to="b"),
                                 _node("Mul", "b", "b", to="d"))),
    _function("Elu", Prepared(), in_place=_OVER),
    _function("Selu", Prepared()),
    _function("Celu", Prepared()),
    _function("Mish", Prepared()),
    _function("Swish", NoGradient("write it as x·sigmoid(x)")),
    _each("HardSigmoid", gradient=Prepared(), in_place=_OVER),
    _each("HardSwish", gradient=Prepared()),
    _each("ThresholdedRelu", gradient=Prepared()),
    _each("Shrink", gradient=Prepared()),
)  # fmt: skip

_LOGIC = (
    _decision("Equal", np.equal, _SYMMETRIC),
    _decision("Less", np.less, _EACH | Trait.ORDERS),
    _decision("LessOrEqual", np.less_equal, _EACH | Trait.ORDERS),
    _decision("Greater", np.greater, _EACH | Trait.ORDERS),
    _decision("GreaterOrEqual", np.greater_equal, _EACH | Trait.ORDERS),
    _decision("And", np.logical_and, _GROUPED, shape=rules.elementwise),
    _decision("Or", np.logical_or, _GROUPED, shape=rules.elementwise),
    _decision("Xor", np.logical_xor, _GROUPED, shape=rules.elementwise),
    _each("Not", traits=_EACH | Trait.DISCRETE, evaluate=by_numpy.unary(np.logical_not)),
    _each("IsNaN", traits=_EACH | Trait.DISCRETE, shape=rules.predicate),
    _each("IsInf", traits=_EACH | Trait.DISCRETE, shape=rules.predicate),
    *(_binary(f"Bitwise{n}", _GROUPED | Trait.DISCRETE, NoGradient()) for n in ("And", "Or", "Xor")),
    _each("BitwiseNot", traits=_EACH | Trait.DISCRETE),
    _binary("BitShift", _EACH | Trait.DISCRETE, NoGradient(), shape=None),
)  # fmt: skip

_TYPES = (
    _each("Cast", traits=_EACH | Trait.MOVES, shape=rules.cast, positions=positions.first_operand,
          gradient=BUILT_IN, evaluate=by_numpy.cast, content=content.cast),
    _each("CastLike", traits=_EACH | Trait.MOVES, shape=None, positions=None,
          gradient=Prepared("resolve-cast-like")),
)  # fmt: skip

ELEMENTWISE = (*_ARITHMETIC, *_FUNCTIONS, *_ACTIVATIONS, *_LOGIC, *_TYPES)
