"""A linear layer whose products are in bf16, added up in floats."""

from __future__ import annotations

import math

import numpy as np

from fuseline.kernels.operator import Array, GradientNode, Operator, Sizes, optional, port
from fuseline.kernels.workspace import lines, row_partials

__all__ = ["LINEAR_OPERATORS", "round_to_bf16"]


def round_to_bf16(x: Array) -> Array:
    """The nearest bf16 of every float, ties to even, as floats."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.float32(np.nan), nearest.view(np.float32))


def linear(x: Array, weight: Array, bias: Array, transposed: int = 1) -> tuple[Array, ...]:
    rounded, w = round_to_bf16(x), round_to_bf16(weight)
    y = rounded @ (w.T if transposed else w)
    return (y + bias if bias.size else y), rounded, np.array([transposed], np.float32)


def linear_grad(dy: Array, rounded: Array, weight: Array, bias: Array, state: Array) -> tuple[Array, ...]:
    transposed, w = bool(state[0]), round_to_bf16(weight)
    count = math.prod(dy.shape[:-1])
    slopes = round_to_bf16(dy).reshape(count, dy.shape[-1])
    rows = rounded.reshape(count, rounded.shape[-1])
    dx = (slopes @ (w if transposed else w.T)).reshape(rounded.shape)
    dweight = slopes.T @ rows if transposed else rows.T @ slopes
    return dx, dweight, dy.reshape(count, dy.shape[-1]).sum(0) if bias.size else bias


def _packed(left: int, right: int, depth: int) -> int:
    """Both operands in whole blocks of pairs, and a row to start from."""
    blocks = [-(-count // 96) * 96 for count in (left, right)]
    return lines(blocks[1] + sum(blocks) * -(-depth // 2))


def _backward(sizes: Sizes) -> int:
    rows, outputs, inputs = (sizes[letter] for letter in "RNK")
    products = (
        _packed(rows, inputs, outputs),
        _packed(outputs, inputs, rows),
        _packed(inputs, outputs, rows),
    )
    return max(*products, row_partials(rows, outputs, 1))


_WEIGHT, _BIAS = port("weight", "N,K/K,N"), port("bias", "N?")

LINEAR_OPERATORS = (
    Operator(
        "FusedLinearBf16",
        "x·weightᵀ + bias (or x·weight + bias), x and weight rounded to bf16, sums in floats; keeps the "
        "rounded x for the gradient",
        (port("x", "*R,K"), _WEIGHT, _BIAS),
        (port("y", "*R,N"), optional("rounded", "*R,K", "bfloat16"), optional("state", "1")),
        linear,
        {"transposed": 1},
        (
            GradientNode(
                "FusedLinearBf16Grad",
                ("GO(0)", "O(1)", "I(1)", "I(2)", "O(2)"),
                ("GI(0)", "GI(1)", "GI(2)"),
            ),
        ),
        lambda sizes: _packed(sizes["R"], sizes["N"], sizes["K"]),
    ),
    Operator(
        "FusedLinearBf16Grad",
        "gradient of FusedLinearBf16: products in bf16, the bias's sum in floats",
        (port("dy", "*R,N"), port("rounded", "*R,K", "bfloat16"), _WEIGHT, _BIAS, port("state", "1")),
        (optional("dx", "*R,K"), optional("dweight", "N,K/K,N"), optional("dbias", "N?")),
        linear_grad,
        workspace=_backward,
    ),
)
