"""Quantization, its way back, and products of small integers."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from fuseline.tools.campaigns.fuzz.drawing import SYMBOLS, Drawing, Unfit, random_content
from fuseline.tools.campaigns.fuzz.operators.table import draws

__all__: list[str] = []


@draws(1.2)
def there_and_back(g: Drawing) -> None:
    """QuantizeLinear, sometimes followed by DequantizeLinear, per tensor or per axis."""
    x = g.pick((TensorProto.FLOAT,))
    per_axis = g.opset >= 13 and x.rank > 0 and x.shape[-1] not in (0, *SYMBOLS.values()) and g.maybe(0.3)
    shape = (x.shape[-1],) if per_axis else ()
    scale = g.constant(np.full(shape, 0.05, np.float32))
    zero = g.constant(np.full(shape, 3, g.choose((np.uint8, np.int8))))
    more = {"axis": -1} if per_axis else {}
    small = g.one("QuantizeLinear", x, scale, zero, **more)
    if g.maybe(0.7):
        g.one("DequantizeLinear", small, scale, zero, **more)


@draws(0.6)
def dequantized_weight(g: Drawing) -> None:
    x = g.pick((TensorProto.FLOAT,), (2, 3), lambda v: v.shape[-1] not in (0, *SYMBOLS.values()))
    weight = g.constant(random_content(g.chance, TensorProto.INT8, (x.shape[-1], 4)))
    real = g.one("DequantizeLinear", weight, g.constant(np.array(0.1, np.float32)))
    g.one("MatMul", x, real)


@draws(0.6)
def dynamic(g: Drawing) -> None:
    x = g.pick(
        (TensorProto.FLOAT,), (2, 3), lambda v: 0 not in v.shape and v.shape[-1] not in SYMBOLS.values()
    )
    small, scale, zero = g.add("DynamicQuantizeLinear", [x], 3)
    weight = g.constant(random_content(g.chance, TensorProto.INT8, (x.shape[-1], 4)))
    product = g.one("MatMulInteger", small, weight, zero)
    g.one("Mul", g.one("Cast", product, to=TensorProto.FLOAT), scale)


@draws(0.5)
def whole_product(g: Drawing) -> None:
    x = g.pick((TensorProto.UINT8,), (2, 2))
    if 0 in x.shape:
        raise Unfit("empty")
    weight = g.constant(random_content(g.chance, TensorProto.UINT8, (x.shape[1], 2)))
    if g.maybe(0.5):
        g.one("MatMulInteger", x, weight)
        return
    scale, zero = g.constant(np.array(0.1, np.float32)), g.constant(np.array(1, np.uint8))
    g.one("QLinearMatMul", x, scale, zero, weight, scale, zero, scale, zero)
