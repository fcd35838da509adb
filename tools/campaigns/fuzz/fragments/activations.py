"""GELU in its spellings, SiLU, gates, and what stands before them."""

from __future__ import annotations

from math import pi, sqrt

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

__all__ = ["activation", "linear"]


def erf_gelu(g: Drawing, x: Value) -> Value:
    if g.maybe(0.5):
        scaled = g.one("Div", x, number(g, x, sqrt(2)))
    else:
        scaled = times(g, x, number(g, x, 1 / sqrt(2)))
    inner = add_either_way(g, g.one("Erf", scaled), number(g, x, 1.0))
    style = g.chance.randrange(3)
    if style == 0:
        return times(g, times(g, x, inner), number(g, x, 0.5))
    if style == 1:
        return times(g, times(g, x, number(g, x, 0.5)), inner)
    return times(g, x, times(g, inner, number(g, x, 0.5)))


def tanh_gelu(g: Drawing, x: Value) -> Value:
    cube = g.one("Pow", x, number(g, x, 3.0)) if g.maybe(0.5) else times(g, x, g.one("Mul", x, x))
    inner = add_either_way(g, x, times(g, cube, number(g, x, 0.044715)))
    tanh = g.one("Tanh", times(g, inner, number(g, x, sqrt(2 / pi))))
    summed = add_either_way(g, tanh, number(g, x, 1.0))
    if g.maybe(0.5):
        return times(g, times(g, x, number(g, x, 0.5)), summed)
    return times(g, times(g, x, summed), number(g, x, 0.5))


def quick_gelu(g: Drawing, x: Value) -> Value:
    return times(g, x, g.one("Sigmoid", times(g, x, number(g, x, 1.702))))


def silu(g: Drawing, x: Value) -> Value:
    return times(g, x, g.one("Sigmoid", x))


def activation(g: Drawing, x: Value) -> Value:
    return g.chance.choice((erf_gelu, tanh_gelu, quick_gelu, silu))(g, x)


def linear(g: Drawing, x: Value, width: int | None = None, bias: bool = True) -> Value:
    """MatMul and Add, the weight sometimes behind a Transpose, or Gemm on matrices."""
    inner, columns = x.shape[-1], width or g.choose((2, 4, 8))
    if x.rank == 2 and g.maybe(0.3):
        return g.one("Gemm", x, weight(g, x, (columns, inner)), weight(g, x, (columns,)), transB=1)
    if g.maybe(0.25):
        matrix = g.one("Transpose", weight(g, x, (columns, inner)), perm=[1, 0])
    else:
        matrix = weight(g, x, (inner, columns))
    product = g.one("MatMul", x, matrix)
    if g.maybe(0.1):
        product = times(g, product, number(g, x, 0.5))
    return add_either_way(g, product, weight(g, x, (columns,))) if bias and g.maybe(0.85) else product


@fragment
def lone_activation(g: Drawing) -> None:
    activation(g, hidden_states(g))


@fragment
def bias_and_activation(g: Drawing) -> None:
    x = linear(g, hidden_states(g))
    if g.maybe(0.3) and g.opset >= 20:
        g.one("Gelu", x, approximate=vary(g, "none", "tanh"))
        return
    activation(g, x)


@fragment
def added_bias_and_activation(g: Drawing) -> None:
    x = hidden_states(g)
    activation(g, add_either_way(g, x, weight(g, x, x.shape[-1:])))


@fragment
def product_and_activation(g: Drawing) -> None:
    """Gemm or MatMul, scaled or transposed, and a plain activation."""
    x = hidden_states(g)
    if x.rank == 2 and g.maybe(0.5):
        bias = vary(g, (4,), (1, 4), (x.shape[0], 1), (x.shape[0], 4), (1,), ())
        y = g.one("Gemm", x, weight(g, x, (x.shape[-1], 4)), g.fresh(x.dtype, bias))
    else:
        y = linear(g, x)
    op = g.choose(("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Softplus", "HardSigmoid", "Elu"))
    g.one(op, y)


@fragment
def transposed_product(g: Drawing) -> None:
    """MatMul of a transposed operand, scaled before or behind."""
    x = hidden_states(g)
    if x.rank < 2:
        return
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    flipped = g.one("Transpose", x, perm=vary(g, perm, list(range(x.rank))[::-1]))
    other = vary(g, x, g.fresh(x.dtype, x.shape))
    product = g.one("MatMul", *vary(g, (other, flipped), (flipped, other)))
    scale = number(g, x, g.choose((0.125, 2.0)))
    g.one(g.choose(("Mul", "Div")), product, scale)


@fragment
def gated(g: Drawing) -> None:
    x = hidden_states(g)
    gate, up = linear(g, x, 4, bias=False), linear(g, x, 4, bias=False)
    mixed = times(g, g.choose((silu, erf_gelu, tanh_gelu))(g, gate), up)
    linear(g, mixed, x.shape[-1], bias=False)


@fragment
def halves_gated(g: Drawing) -> None:
    x = linear(g, hidden_states(g), 8)
    if g.opset < 18:
        return
    first, second = g.add("Split", [x], 2, axis=-1, num_outputs=2)
    times(g, silu(g, first), second)
