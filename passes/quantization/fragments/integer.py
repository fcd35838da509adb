"""Integer products: how each kind is written, given an activation that has been quantized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from fuseline.engine.nodes import attribute
from fuseline.engine.quantization.grid import Quantized
from fuseline.engine.quantization.products import Product
from fuseline.engine.rewriting.builder import Builder

__all__ = ["Format", "Input", "write_attention", "write_convolution", "write_matrix"]

Format = Literal["fused", "standard"]
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Input:
    """A quantized activation: integers, scale and zero point."""

    integers: ir.Value
    scale: ir.Value
    zero: ir.Value


def write_matrix(op: Builder, x: Input, product: Product, weight: Quantized, form: Format) -> Any:
    """x·w + bias, dequantized; the activation function of a FusedGemm behind it."""
    if form == "fused":
        made = op.MatMulIntegerToFloat(
            x.integers,
            op.constant(weight.values, "weight"),
            x.scale,
            op.constant(weight.scale, "scale"),
            x.zero,
            zero_point(op, weight),
            None if product.bias is None else op.constant(product.bias, "bias"),
            _domain=MICROSOFT,
        )
    else:
        made = op.MatMulInteger(
            x.integers, op.constant(weight.values, "weight"), x.zero, zero_point(op, weight)
        )
        made = op.Cast(made, to=ir.DataType.FLOAT)
        made = op.Mul(made, op.Mul(x.scale, op.constant(weight.scale, "scale")))
        made = made if product.bias is None else op.Add(made, op.constant(product.bias, "bias"))
    return activated(op, product, made)


def write_attention(op: Builder, x: Input, product: Product, weight: Quantized) -> Any:
    """Attention on the integer projection; where QAttention lacks an input, the projection stands apart."""
    inputs = [*product.node.inputs, *[None] * 6][:6]
    attributes = {name: a.value for name, a in product.node.attributes.items()}
    bias = np.zeros(weight.values.shape[1], np.float32) if product.bias is None else product.bias
    if inputs[5] is None:
        return op.QAttention(
            x.integers,
            op.constant(weight.values, "weight"),
            op.constant(bias, "bias"),
            x.scale,
            op.constant(weight.scale, "scale"),
            inputs[3],
            x.zero,
            zero_point(op, weight),
            _domain=MICROSOFT,
            **attributes,
        )
    plain = Product(product.node, "matrix", product.replaced, bias)
    parts = op.Split(
        write_matrix(op, x, plain, weight, "fused"),
        np.full(3, weight.values.shape[1] // 3, np.int64),
        axis=-1,
        _outputs=3,
    )
    return op.MultiHeadAttention(*parts, None, inputs[3], inputs[5], _domain=MICROSOFT, **attributes)


def write_convolution(op: Builder, x: Input, product: Product, weight: Quantized) -> Any:
    """ConvInteger, dequantized, plus bias; and the activation function of a FusedConv."""
    kept = {
        name: a.value
        for name, a in product.node.attributes.items()
        if name not in ("activation", "activation_params")
    }
    # Older runtimes have unsigned weights only: the same integers, moved by half the range.
    unsigned = (weight.values.astype(np.int16) + 128).astype(np.uint8)
    made = op.ConvInteger(
        x.integers,
        op.constant(unsigned, "weight"),
        x.zero,
        op.constant(np.array(128, np.uint8), "zero"),
        **kept,
    )
    made = op.Cast(made, to=ir.DataType.FLOAT)
    spatial = [1] * (weight.values.ndim - 2)
    scale = weight.scale.reshape(-1, *spatial)
    made = op.Mul(made, op.Mul(x.scale, op.constant(scale, "scale")))
    if product.bias is not None:
        made = op.Add(made, op.constant(product.bias.reshape(-1, *spatial), "bias"))
    return activated(op, product, made)


def activated(op: Builder, product: Product, made: Any) -> Any:
    """The activation function that a fused node has in itself, as a node."""
    function = attribute(product.node, "activation", None)
    if not function:
        return made
    given = attribute(product.node, "activation_params", ())
    if function == "Clip":
        return op.Clip(made, *(np.array(v, np.float32) for v in given))
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}.get(function, ())
    return op.node(function, made, **dict(zip(names, given, strict=False)))


def zero_point(op: Builder, weight: Quantized) -> Any:
    """Nothing where all are zero, which every runtime takes for granted."""
    return op.constant(weight.zero, "zero") if weight.zero.any() else None
