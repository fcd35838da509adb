"""Products, convolutions, pooling, normalisations and recurrent cells."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from fuseline.tools.campaigns.fuzz.drawing import FLOATS, SYMBOLS, Drawing, Unfit, Value
from fuseline.tools.campaigns.fuzz.operators.table import draws

__all__ = ["convolution", "matmul_partner"]


def matmul_partner(g: Drawing, x: Value) -> Value:
    """A right operand for x: there already, a weight, or a batch of weights."""
    inner = x.shape[-1]
    fitting = [v for v in g.visible() if v.dtype == x.dtype and v.rank >= 2 and v.shape[-2] == inner]
    if fitting and g.maybe(0.3):
        return g.chance.choice(fitting)
    columns = g.choose((1, 2, 4, 8, SYMBOLS["W"]))
    if x.rank > 2 and g.maybe(0.25):
        return g.fresh(x.dtype, (*x.shape[:-2], inner, columns))
    return g.fresh(x.dtype, (inner,) if g.maybe(0.1) else (inner, columns))


@draws(5)
def matmul(g: Drawing) -> None:
    x = g.pick((*FLOATS, TensorProto.INT32, TensorProto.INT64) if g.maybe(0.2) else FLOATS, (1, 4))
    g.one("MatMul", x, matmul_partner(g, x))


@draws(3)
def gemm(g: Drawing) -> None:
    x = g.pick(FLOATS, (2, 2))
    flip_a, flip_b = g.choose((0, 0, 0, 1)), g.choose((0, 1))
    rows, inner = x.shape[::-1] if flip_a else x.shape
    columns = g.choose((1, 2, 4, 8))
    weight = g.fresh(x.dtype, (columns, inner) if flip_b else (inner, columns))
    biases: tuple[tuple[int, ...], ...] = ((columns,), (1, columns), (rows, 1), (rows, columns), (1,), ())
    bias = [] if g.maybe(0.3) and g.opset >= 11 else [g.fresh(x.dtype, g.choose(biases))]
    scale: dict[str, Any] = (
        {"alpha": g.choose((1.0, 0.5)), "beta": g.choose((1.0, 2.0))} if g.maybe(0.3) else {}
    )
    g.one("Gemm", x, weight, *bias, transA=flip_a, transB=flip_b, **scale)


@draws(1)
def einsum(g: Drawing) -> None:
    x = g.pick(FLOATS, (2, 3))
    if x.rank == 2:
        equation, shape = g.choose((("ij,jk->ik", (x.shape[1], 2)), ("ij,kj->ik", (2, x.shape[1]))))
    else:
        equation, shape = g.choose(
            (("bij,bjk->bik", (x.shape[0], x.shape[2], 2)), ("bij,jk->bik", (x.shape[2], 2)))
        )
    g.one("Einsum", x, g.fresh(x.dtype, shape), equation=equation)


def convolution(g: Drawing, x: Value, op: str = "Conv") -> Value:
    """A convolution of random kernel, strides, padding and groups on an [N, C, …] value."""
    channels, spatial = x.shape[1], x.rank - 2
    if channels == 0 or channels in SYMBOLS.values():
        raise Unfit("the channels are not fixed")
    group = g.choose((1, 1, channels))
    width = g.choose((1, 2, 4))
    kernel = [g.choose((1, 2, 3)) for _ in range(spatial)]
    weight_shape = (width * group, channels // group) if op == "Conv" else (channels, width)
    weight = (
        g.fresh(x.dtype, (*weight_shape, *kernel))
        # A kernel of no size, which a free one could get, the runtime never ends with.
        if g.maybe(0.2) and not set(kernel) & set(SYMBOLS.values())
        else _weight(g, x, (*weight_shape, *kernel))
    )
    bias = [_weight(g, x, (width * group,))] if g.maybe(0.5) else []
    attributes: dict[str, Any] = {} if g.maybe(0.3) else {"kernel_shape": kernel}
    if group > 1:
        attributes["group"] = group
    if g.maybe(0.3):
        attributes["strides"] = [g.choose((1, 2)) for _ in kernel]
    if g.maybe(0.6):
        attributes["pads"] = [g.choose((0, 1, 1, 2)) for _ in range(2 * spatial)]
    elif op == "Conv" and g.maybe(0.4):
        attributes["auto_pad"] = g.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
    if op == "Conv" and g.maybe(0.2):
        attributes["dilations"] = [g.choose((1, 2)) for _ in kernel]
    made = g.one(op, x, weight, *bias, **attributes)
    if min(made.shape) <= 0:
        raise Unfit("the kernel is larger than the image")
    return made


def _weight(g: Drawing, x: Value, shape: tuple[int, ...]) -> Value:
    from fuseline.tools.campaigns.fuzz.drawing import random_content

    return g.constant(random_content(g.chance, x.dtype, shape))


@draws(3)
def conv(g: Drawing) -> None:
    x = g.pick(FLOATS, (3, 4), fresh=0.4)
    convolution(g, x, "Conv" if g.maybe(0.75) else "ConvTranspose")


@draws(2)
def pool(g: Drawing) -> None:
    x = g.pick(FLOATS, (3, 4), lambda v: min(v.shape[2:]) > 1)
    op = g.choose(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if op.startswith("Global"):
        g.one(op, x)
        return
    kernel = [2] * (x.rank - 2)
    more: dict[str, Any] = {"pads": [1] * 2 * len(kernel)} if g.maybe(0.3) else {}
    if op == "AveragePool" and g.maybe(0.5):
        more["count_include_pad"] = 1
    g.one(op, x, kernel_shape=kernel, strides=[g.choose((1, 2)) for _ in kernel], **more)


@draws(1.5)
def batch_norm(g: Drawing) -> None:
    x = g.pick(FLOATS, (2, 4), lambda v: v.shape[1] not in (0, *SYMBOLS.values()))
    per_channel = [_weight(g, x, (x.shape[1],)) for _ in range(3)]
    variance = g.one("Abs", per_channel[0]) if g.maybe(0.1) else g.number(0.7, x, (x.shape[1],))
    g.one("BatchNormalization", x, *per_channel, variance, epsilon=g.choose((1e-5, 1e-3)))


@draws(1.5)
def layer_norm(g: Drawing) -> None:
    x = g.pick(FLOATS, (1, 4), lambda v: v.shape[-1] > 1)
    axis = g.choose((-1, x.rank - 1))
    bias = [g.fresh(x.dtype, x.shape[-1:])] if g.maybe(0.7) else []
    g.one("LayerNormalization", x, g.fresh(x.dtype, x.shape[-1:]), *bias, axis=axis)


@draws(0.8)
def instance_norm(g: Drawing) -> None:
    x = g.pick(FLOATS, (3, 4), lambda v: v.shape[1] not in (0, *SYMBOLS.values()) and min(v.shape[2:]) > 1)
    scale, bias = _weight(g, x, (x.shape[1],)), _weight(g, x, (x.shape[1],))
    g.one("InstanceNormalization", x, scale, bias)


@draws(0.5)
def group_norm(g: Drawing) -> None:
    x = g.pick(FLOATS, (3, 4), lambda v: v.shape[1] in (2, 4, 8) and min(v.shape[2:]) > 1)
    count = x.shape[1] if g.opset >= 21 else 2
    scale, bias = _weight(g, x, (count,)), _weight(g, x, (count,))
    g.one("GroupNormalization", x, scale, bias, num_groups=2)


@draws(0.5)
def response_norm(g: Drawing) -> None:
    x = g.pick(FLOATS, (4, 4))
    if g.maybe(0.5):
        g.one("LRN", x, size=3)
    else:
        g.one("MeanVarianceNormalization", x, axes=[0, 2, 3])


@draws(0.7)
def resize(g: Drawing) -> None:
    x = g.pick((TensorProto.FLOAT,), (4, 4), lambda v: min(v.shape) > 0)
    import numpy as np

    scales = g.constant(np.array([1, 1, 2, 2], np.float32))
    shape = (*x.shape[:2], x.shape[2] * 2, x.shape[3] * 2)
    told: dict[str, Any] = {"shapes": [shape], "types": [x.dtype], "mode": "nearest"}
    if g.opset < 10:
        if g.opset == 9:
            g.one("Upsample", x, scales, **told)
            return
        raise Unfit("scales were an attribute")
    if g.opset == 10:
        g.one("Resize", x, scales, **told)
        return
    roi = g.constant(np.array([], np.float32)) if g.opset < 13 else None
    g.one("Resize", x, roi, scales, **told, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@draws(1.2)
def recurrent(g: Drawing) -> None:
    """LSTM, GRU or RNN with its optional inputs there or absent."""
    op, gates = g.choose((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    x = g.pick(
        (TensorProto.FLOAT,), (3, 3), lambda v: min(v.shape) > 0 and v.shape[2] not in SYMBOLS.values()
    )
    hidden = g.choose((2, 4))
    directions = g.choose((1, 2))
    w = _weight(g, x, (directions, gates * hidden, x.shape[2]))
    r = _weight(g, x, (directions, gates * hidden, hidden))
    rest: list[Value | None] = []
    if g.maybe(0.6):
        rest.append(_weight(g, x, (directions, 2 * gates * hidden)) if g.maybe(0.7) else None)
        rest.append(None)
        if g.maybe(0.6):
            state = (directions, x.shape[1], hidden)
            rest.append(_zero_state(g, x, state))
            if op == "LSTM" and g.maybe(0.8):
                rest.append(_zero_state(g, x, state))
    if rest and all(v is None for v in rest):
        rest = []
    attributes: dict[str, Any] = {"direction": "bidirectional"} if directions == 2 else {}
    outputs = g.chance.randint(1, 3 if op == "LSTM" else 2)
    g.add(op, [x, w, r, *rest], outputs, hidden_size=hidden, **attributes)


def _zero_state(g: Drawing, x: Value, shape: tuple[int, int, int]) -> Value:
    """Zeros whose batch size is computed, as exporters write them, or a plain value."""
    if g.maybe(0.5) or g.opset < 9:
        return g.fresh(x.dtype, shape)
    from fuseline.tools.campaigns.fuzz.operators.layout import shape_vector

    target = g.one("Concat", g.ints(shape[0]), shape_vector(g, x, 1), g.ints(shape[2]), axis=0)
    return g.one("ConstantOfShape", target, shapes=[shape], types=[x.dtype])
