"""Layer norm, RMS norm and softmax written out, and residual sums before them."""

from __future__ import annotations

from fuseline.tools.campaigns.fuzz.drawing import Drawing, Value
from fuseline.tools.campaigns.fuzz.fragments.table import (
    add_either_way,
    fragment,
    hidden_states,
    number,
    times,
    vary,
    weight,
)
from fuseline.tools.campaigns.fuzz.operators.reductions import reduce

__all__ = ["layer_norm", "norm_operator", "rms_norm"]


def _mean(g: Drawing, x: Value, op: str = "ReduceMean") -> Value:
    axes = vary(g, [-1], [x.rank - 1], [0], [-2] if x.rank > 1 else [-1], None)
    if axes and axes[0] < 0 and g.opset < 11:
        axes = [axes[0] % x.rank]
    return reduce(g, op, x, axes, vary(g, True, False) if x.rank < 2 else True)


def _square(g: Drawing, x: Value) -> Value:
    if g.maybe(0.5):
        return g.one("Mul", x, x)
    return g.one("Pow", x, number(g, x, 2.0))


def layer_norm(g: Drawing, x: Value) -> Value:
    centred = g.one("Sub", x, _mean(g, x))
    again = vary(g, centred, x)
    if g.maybe(0.2):
        again = g.one("Sub", x, _mean(g, x))
    spread = g.one("Sqrt", add_either_way(g, _mean(g, _square(g, again)), number(g, x, 1e-5)))
    if g.maybe(0.3):
        normal = times(g, centred, g.one("Reciprocal", spread))
    else:
        normal = g.one("Div", centred, spread)
    if g.maybe(0.9):
        normal = times(g, normal, weight(g, x, x.shape[-1:]))
    if g.maybe(0.9):
        normal = add_either_way(g, normal, weight(g, x, x.shape[-1:]))
    return normal


def rms_norm(g: Drawing, x: Value) -> Value:
    inner = x
    if g.maybe(0.2):
        inner = g.one("Cast", x, to=1)
    power = _mean(g, _square(g, inner), vary(g, "ReduceMean", "ReduceSum"))
    root = g.one("Sqrt", add_either_way(g, power, number(g, inner, 1e-6)))
    normal = g.one("Div", inner, root) if g.maybe(0.4) else times(g, inner, g.one("Reciprocal", root))
    if inner is not x:
        normal = g.one("Cast", normal, to=x.dtype)
    return times(g, normal, weight(g, x, x.shape[-1:])) if g.maybe(0.85) else normal


def norm_operator(g: Drawing, x: Value) -> Value:
    """The operator itself where there is one, or else written out."""
    if g.opset < 17 or x.dtype not in (1, 11) or g.maybe(0.3):
        return layer_norm(g, x)
    axis = vary(g, -1, x.rank - 1, 0)
    shape = x.shape[axis:] if axis < 0 or axis == x.rank - 1 else x.shape
    bias = [weight(g, x, shape)] if g.maybe(0.85) else []
    return g.one("LayerNormalization", x, weight(g, x, shape), *bias, axis=axis, epsilon=vary(g, 1e-5, 1e-3))


@fragment
def lone_layer_norm(g: Drawing) -> None:
    layer_norm(g, hidden_states(g))


@fragment
def lone_rms_norm(g: Drawing) -> None:
    rms_norm(g, hidden_states(g))


@fragment
def skip_and_norm(g: Drawing) -> None:
    """A residual sum, maybe with a bias, and a norm; the sum may be used again."""
    x = hidden_states(g)
    other = vary(g, x.shape, (1, *x.shape[1:]), x.shape[1:], (*x.shape[:-2], 1, *x.shape[-1:]), (1,) * x.rank)
    y = g.input(x.dtype, other)
    if g.maybe(0.4):
        y = add_either_way(g, y, weight(g, x, x.shape[-1:]))
    total = add_either_way(g, x, y)
    normal = norm_operator(g, total) if g.maybe(0.7) else rms_norm(g, total)
    if g.maybe(0.3):
        g.one("Add", total, normal)


@fragment
def written_softmax(g: Drawing) -> None:
    x = hidden_states(g)
    axes = vary(g, [x.rank - 1], [0])
    lowered = g.one("Sub", x, reduce(g, "ReduceMax", x, axes)) if g.maybe(0.8) else x
    raised = g.one("Exp", lowered)
    if g.maybe(0.3):
        g.one("Sub", lowered, g.one("Log", reduce(g, "ReduceSum", raised, vary(g, axes, [0]))))
        return
    soft = g.one("Div", raised, reduce(g, "ReduceSum", raised, vary(g, axes, [0])))
    if g.maybe(0.4):
        g.one("Log", soft)


@fragment
def log_of_softmax(g: Drawing) -> None:
    x = hidden_states(g)
    axis = vary(g, x.rank - 1, 0)
    g.one("Log", g.one("Softmax", x, axis=axis))
