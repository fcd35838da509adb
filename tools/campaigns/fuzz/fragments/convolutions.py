"""Convolutions followed by what can be folded or fused into them."""

from __future__ import annotations

import numpy as np

from fuseline.tools.campaigns.fuzz.drawing import Drawing, Value, numpy_type, random_content
from fuseline.tools.campaigns.fuzz.fragments.table import fragment, number, vary
from fuseline.tools.campaigns.fuzz.operators.neural import convolution

__all__: list[str] = []


def _image(g: Drawing) -> Value:
    shape = vary(g, (3, 4, 6, 6), (3, 2, 5), (1, 4, 5, 7), (3, 1, 6, 6))
    return g.input(g.main_float, shape)


@fragment
def conv_and_norm(g: Drawing) -> None:
    x = convolution(g, _image(g), vary(g, "Conv", "ConvTranspose"))
    size = x.shape[1]
    scale, bias, mean = (g.constant(random_content(g.chance, x.dtype, (size,))) for _ in range(3))
    spread = g.constant(np.abs(random_content(g.chance, x.dtype, (size,))) + numpy_type(x.dtype).type(0.1))
    made = g.one("BatchNormalization", x, scale, bias, mean, spread)
    if g.maybe(0.5):
        g.one(g.choose(("Relu", "Sigmoid", "LeakyRelu", "Clip", "Tanh")), made)


@fragment
def conv_and_affine(g: Drawing) -> None:
    """Mul, Add, Sub or Div by constants, of channel shape or not, before or behind a convolution."""
    x = _image(g)
    if g.maybe(0.3):
        x = g.one(g.choose(("Mul", "Add", "Sub", "Div")), x, number(g, x, 2.0))
    x = convolution(g, x)
    for _ in range(g.chance.randint(1, 2)):
        per_channel = (x.shape[1], *(1,) * (x.rank - 2))
        shape = vary(g, per_channel, (1, *per_channel), (), (1,), (x.shape[-1],), (2, *per_channel))
        operand = g.constant(random_content(g.chance, x.dtype, shape, "positive"))
        x = g.one(g.choose(("Mul", "Add", "Sub", "Div")), *vary(g, (x, operand), (operand, x)))


@fragment
def conv_and_activation(g: Drawing) -> None:
    x = convolution(g, _image(g))
    op = g.choose(("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish"))
    if op == "Clip" and g.opset >= 11:
        g.one(op, x, number(g, x, 0.0), number(g, x, 6.0))
        return
    g.one(op, x)


@fragment
def pad_and_conv(g: Drawing) -> None:
    x = _image(g)
    if g.opset < 11:
        return
    amounts = [0, 0, *(1,) * (x.rank - 2)] * 2
    padded = g.one("Pad", x, g.ints(*vary(g, amounts, [1] * 2 * x.rank)), mode=vary(g, "constant", "edge"))
    convolution(g, padded)


@fragment
def normalised_image(g: Drawing) -> None:
    """(image − mean) / deviation, convolution, global pooling, and a Reshape to a matrix."""
    x = g.input(g.main_float, (3, 2, 6, 5))
    mean = g.constant(random_content(g.chance, x.dtype, vary(g, (1, 2, 1, 1), (2, 1, 1), ())))
    spread = g.constant(random_content(g.chance, x.dtype, vary(g, (1, 2, 1, 1), (2, 1, 1)), "positive"))
    y = convolution(g, g.one("Div", g.one("Sub", x, mean), spread))
    pooled = g.one("GlobalAveragePool", y)
    g.one(
        "Reshape",
        pooled,
        g.ints(*vary(g, (-1, y.shape[1]), (0, -1), (0, y.shape[1]))),
        shapes=[(3, y.shape[1])],
        types=[x.dtype],
    )
