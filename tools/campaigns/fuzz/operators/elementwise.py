"""Operators that go element by element, broadcasting or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from fuseline.tools.campaigns.fuzz.drawing import (
    FLOATS,
    SYMBOLS,
    Drawing,
    Shape,
    Unfit,
    Value,
    allowed_types,
    numpy_type,
)
from fuseline.tools.campaigns.fuzz.operators.table import draws

__all__ = ["broadcast_partner", "scalar_like"]

_UNARY = (
    *(
        "Abs",
        "Neg",
        "Exp",
        "Log",
        "Sqrt",
        "Reciprocal",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Sin",
        "Cos",
        "Tan",
    ),
    *("Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Tanh", "Sigmoid", "Relu", "Erf"),
    *("Softplus", "Softsign", "Selu", "HardSwish", "Mish", "IsNaN", "Not", "Identity", "BitwiseNot"),
)
_WITH_ATTRIBUTES: dict[str, Callable[[Drawing], dict[str, Any]]] = {
    "Elu": lambda g: {"alpha": g.choose((1.0, 0.5))},
    "Celu": lambda g: {"alpha": g.choose((1.0, 2.0))},
    "LeakyRelu": lambda g: {"alpha": g.choose((0.01, 0.2, 0.0))},
    "HardSigmoid": lambda g: {"alpha": g.choose((0.2, 1 / 6)), "beta": 0.5},
    "ThresholdedRelu": lambda g: {"alpha": g.choose((1.0, 0.0))},
    "IsInf": lambda g: {"detect_negative": g.choose((0, 1)), "detect_positive": 1},
    "Gelu": lambda g: {"approximate": g.choose(("none", "tanh"))},
    "Shrink": lambda g: {"lambd": 0.5, "bias": g.choose((0.0, 0.5))},
}
_BINARY = (
    *("Add", "Sub", "Mul", "Div") * 3,
    *("Pow", "PRelu", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor"),
    *("BitwiseAnd", "BitwiseOr", "BitwiseXor"),
)
_INTEGER_TYPES = frozenset(t for t in TensorProto.DataType.values() if t not in (0, 8) and t <= 13) - {
    *FLOATS,
    TensorProto.BOOL,
}


@draws(6)
def unary(g: Drawing) -> None:
    op = g.choose(_UNARY)
    x = g.pick(allowed_types(op, g.opset, 0))
    g.one(op, x)


@draws(1.5)
def unary_with_attributes(g: Drawing) -> None:
    op = g.choose(_WITH_ATTRIBUTES)
    g.one(op, g.pick(allowed_types(op, g.opset, 0)), **_WITH_ATTRIBUTES[op](g))


def broadcast_partner(g: Drawing, x: Value, dtype: int | None = None, kind: str = "any") -> Value:
    """A value that broadcasts with x: there already, or a fresh one of a shape drawn from x's."""
    wanted = x.dtype if dtype is None else dtype
    if g.maybe(0.4):
        fitting = [v for v in g.visible() if v.dtype == wanted and _broadcasts(v.shape, x.shape)]
        if fitting:
            return g.chance.choice(fitting)
    return g.fresh(wanted, _partner_shape(g, x.shape), kind)


def _broadcasts(a: Shape, b: Shape) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def _partner_shape(g: Drawing, shape: Shape) -> Shape:
    style = g.chance.randrange(6)
    if style == 0:
        return ()
    if style == 1:
        return (1,) * g.chance.randint(1, 4)
    kept = shape[g.chance.randint(0, len(shape)) :] if g.maybe(0.5) else shape
    if g.maybe(0.15):
        return (g.choose((1, 2, *SYMBOLS.values())), *shape)[-4:] if len(shape) < 4 else shape
    return tuple(1 if g.maybe(0.25) else s for s in kept)


def scalar_like(g: Drawing, x: Value, number: float) -> Value:
    """A constant of one element: rank 0 mostly, now and then of a higher rank."""
    shape = g.choose(((), (), (), (1,), (1, 1), (1, 1, 1, 1)))
    return g.constant(np.full(shape, number, numpy_type(x.dtype)))


def _plain_number(g: Drawing, x: Value) -> float:
    if x.dtype not in FLOATS:
        return float(g.choose((0, 1, 2, 3)))
    if x.dtype != TensorProto.FLOAT16 and g.maybe(0.08):
        return float(g.choose((1e20, 1e-20, 3e37, 1e-37)))
    return float(g.choose((0.0, 1.0, 2.0, 0.5, -1.0)))


@draws(7)
def binary(g: Drawing) -> None:
    op = g.choose(_BINARY)
    x = g.pick(allowed_types(op, g.opset, 0))
    if op in ("Add", "Sub", "Mul", "Div", "Pow") and g.maybe(0.35):
        y = scalar_like(g, x, _plain_number(g, x))
        if op == "Div" and x.dtype not in FLOATS and not np.all(y.content):
            raise Unfit("an integer division by zero ends the process")
    else:
        y = broadcast_partner(g, x, kind="positive" if op in ("Div", "Pow") else "any")
        if op == "Div" and x.dtype not in FLOATS:
            y = g.constant(np.full(y.shape, 3, numpy_type(x.dtype)))
    pair = [x, y]
    if op not in ("PRelu", "Pow", "Div") and g.maybe(0.5):
        pair.reverse()
    g.one(op, *pair)


@draws(1)
def twice(g: Drawing) -> None:
    """The same value at both operands."""
    op = g.choose(("Add", "Sub", "Mul", "Max", "Min", "Equal"))
    x = g.pick(allowed_types(op, g.opset, 0))
    g.one(op, x, x)


@draws(1)
def modulo(g: Drawing) -> None:
    x = g.pick(_INTEGER_TYPES | set(FLOATS))
    divisor = g.number(g.choose((2, 3)), x, g.choose(((), (1,))))
    g.one("Mod", x, divisor, fmod=1 if x.dtype in FLOATS else g.choose((0, 1)))


@draws(0.7)
def bit_shift(g: Drawing) -> None:
    x = g.pick((TensorProto.UINT8, TensorProto.UINT32, TensorProto.UINT64))
    g.one("BitShift", x, g.number(g.choose((0, 1, 3)), x), direction=g.choose(("LEFT", "RIGHT")))


@draws(2)
def variadic(g: Drawing) -> None:
    op = g.choose(("Sum", "Mean", "Max", "Min"))
    x = g.pick(allowed_types(op, g.opset, 0))
    g.one(op, x, *(broadcast_partner(g, x) for _ in range(g.chance.randint(0, 2))))


@draws(2)
def where(g: Drawing) -> None:
    x = g.pick((*FLOATS, TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8, TensorProto.STRING))
    condition = broadcast_partner(g, x, TensorProto.BOOL)
    chosen = [x, broadcast_partner(g, x)]
    g.chance.shuffle(chosen)
    g.one("Where", condition, *chosen)


@draws(3)
def cast(g: Drawing) -> None:
    x = g.pick(allowed_types("Cast", g.opset, 0) - {TensorProto.STRING})
    targets = allowed_types("Cast", g.opset, 0) & set(range(1, 17)) - {TensorProto.STRING}
    to = g.main_float if g.maybe(0.4) else g.choose(sorted(targets))
    # What a float outside the target's range becomes is undefined.
    if x.dtype in (*FLOATS, TensorProto.BFLOAT16) and to not in (
        *FLOATS,
        TensorProto.BFLOAT16,
        TensorProto.BOOL,
    ):
        to = g.choose((TensorProto.INT32, TensorProto.INT64))
    g.one("Cast", x, to=to)


@draws(0.7)
def cast_like(g: Drawing) -> None:
    x = g.pick((*FLOATS, TensorProto.INT32, TensorProto.INT64))
    g.one("CastLike", x, g.pick((*FLOATS, TensorProto.INT64) if x.dtype not in FLOATS else FLOATS))


@draws(2)
def clip(g: Drawing) -> None:
    low, high = g.choose(((-0.5, 0.5), (0.0, 6.0), (0.0, None), (None, 1.0), (None, None), (0.0, 0.0)))
    x = g.pick(allowed_types("Clip", g.opset, 0))
    if g.opset < 11:
        bounds = {k: v for k, v in (("min", low), ("max", high)) if v is not None}
        g.one("Clip", x, **bounds)
        return
    unsigned = x.dtype not in (*FLOATS, TensorProto.INT64, TensorProto.INT32, TensorProto.INT8)
    made = [None if b is None else g.number(abs(b) if unsigned else b, x) for b in (low, high)]
    while made and made[-1] is None:
        made.pop()
    g.one("Clip", x, *made)


@draws(1)
def dropout(g: Drawing) -> None:
    x = g.pick_float()
    outputs = 2 if g.maybe(0.3) else 1
    types = [x.dtype, x.dtype if g.opset < 10 else TensorProto.BOOL][:outputs]
    if g.opset < 12:
        g.add("Dropout", [x], outputs, [x.shape] * outputs, types, ratio=0.3)
        return
    more = [g.number(0.3, x)] if g.maybe(0.5) else []
    g.add("Dropout", [x, *more], outputs, [x.shape] * outputs, types)
