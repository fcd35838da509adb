"""Operators along the last axis: softmax, bias + dropout + residual, rotary, SwiGLU, sums of columns."""

from __future__ import annotations

import numpy as np

from fuseline.kernels.dropout import dropout_key, dropout_mask
from fuseline.kernels.operator import Array, GradientNode, Operator, optional, port
from fuseline.kernels.workspace import row_partials

__all__ = ["ROW_OPERATORS"]


def softmax(x: Array) -> tuple[Array, ...]:
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return (exponentials / exponentials.sum(-1, keepdims=True),)


def softmax_grad(dy: Array, y: Array) -> tuple[Array, ...]:
    return (y * (dy - (dy * y).sum(-1, keepdims=True)),)


def _mask(shape: tuple[int, ...], key: int, ratio: float) -> Array:
    return dropout_mask(key, int(np.prod(shape[:-1])), shape[-1], ratio).reshape(shape)


def dropout_add(
    x: Array, bias: Array, residual: Array, ratio: Array, seed: Array, stream: int = 0
) -> tuple[Array, ...]:
    key = dropout_key(int(seed[0]), stream)
    y = (x + bias if bias.size else x) * _mask(x.shape, key, float(ratio[0]))
    return (y + residual if residual.size else y), np.array([key], np.int64)


def dropout_add_grad(dy: Array, bias: Array, ratio: Array, key: Array) -> tuple[Array, ...]:
    dx = dy * _mask(dy.shape, int(key[0]), float(ratio[0]))
    return dx, dx.sum(tuple(range(dy.ndim - 1))) if bias.size else bias


def rotary(x: Array, cos: Array, sin: Array) -> tuple[Array, ...]:
    half, rotated = cos.shape[-1] // 2, cos.shape[-1]
    c, s = cos[..., None, :], sin[..., None, :]
    turned = np.concatenate([-x[..., half:rotated], x[..., :half]], -1)
    return (np.concatenate([x[..., :rotated] * c + turned * s, x[..., rotated:]], -1),)


def rotary_grad(dy: Array, cos: Array, sin: Array) -> tuple[Array, ...]:
    half, rotated = cos.shape[-1] // 2, cos.shape[-1]
    c, s = cos[..., None, :], sin[..., None, :]
    product = dy[..., :rotated] * s
    turned = np.concatenate([product[..., half:], -product[..., :half]], -1)
    return (np.concatenate([dy[..., :rotated] * c + turned, dy[..., rotated:]], -1),)


def swiglu(gate: Array, up: Array) -> tuple[Array, ...]:
    return (gate / (1 + np.exp(-gate)) * up,)


def swiglu_grad(dy: Array, gate: Array, up: Array) -> tuple[Array, ...]:
    s = 1 / (1 + np.exp(-gate))
    return dy * up * s * (1 + gate * (1 - s)), dy * gate * s


def column_sum(x: Array) -> tuple[Array, ...]:
    return (x.sum(tuple(range(x.ndim - 1))),)


_DROPOUT_INPUTS = (port("ratio", "1"), port("seed", "1", "int64"))
_TABLES = (port("cos", "B|1,S,R"), port("sin", "B|1,S,R"))

ROW_OPERATORS = (
    Operator(
        "FusedSoftmax",
        "softmax over the last axis",
        (port("x", "*R,N"),),
        (port("y", "*R,N"),),
        softmax,
        gradient=(GradientNode("FusedSoftmaxGrad", ("GO(0)", "O(0)"), ("GI(0)",)),),
    ),
    Operator(
        "FusedSoftmaxGrad",
        "y·(dy − Σ dy·y) over the last axis",
        (port("dy", "*R,N"), port("y", "*R,N")),
        (port("dx", "*R,N"),),
        softmax_grad,
        in_place=(0,),
    ),
    Operator(
        "FusedBiasDropoutAdd",
        "dropout(x + bias) + residual",
        (port("x", "*R,N"), port("bias", "N?"), port("residual", "*R,N?"), *_DROPOUT_INPUTS),
        (port("y", "*R,N"), optional("key", "1", "int64")),
        dropout_add,
        {"stream": 0},
        (
            GradientNode("FusedBiasDropoutAddGrad", ("GO(0)", "I(1)", "I(3)", "O(1)"), ("GI(0)", "GI(1)")),
            GradientNode("Identity", ("GO(0)",), ("GI(2)",), domain=""),
        ),
        in_place=(0,),
    ),
    Operator(
        "FusedBiasDropoutAddGrad",
        "gradient of FusedBiasDropoutAdd but for the residual's, which is dy",
        (port("dy", "*R,N"), port("bias", "N?"), port("ratio", "1"), port("key", "1", "int64")),
        (optional("dx", "*R,N"), optional("dbias", "N?")),
        dropout_add_grad,
        workspace=lambda sizes: row_partials(sizes["R"], sizes["N"], 1),
        in_place=(0,),
    ),
    Operator(
        "FusedRotary",
        "rotary position embedding of [batch, tokens, heads, width], halves paired",
        (port("x", "B,S,H,D"), *_TABLES),
        (port("y", "B,S,H,D"),),
        rotary,
        gradient=(GradientNode("FusedRotaryGrad", ("GO(0)", "I(1)", "I(2)"), ("GI(0)",)),),
    ),
    Operator(
        "FusedRotaryGrad",
        "the rotation of FusedRotary, transposed",
        (port("dy", "B,S,H,D"), *_TABLES),
        (port("dx", "B,S,H,D"),),
        rotary_grad,
    ),
    Operator(
        "FusedSwiGlu",
        "silu(gate)·up",
        (port("gate", "*R"), port("up", "*R")),
        (port("y", "*R"),),
        swiglu,
        gradient=(GradientNode("FusedSwiGluGrad", ("GO(0)", "I(0)", "I(1)"), ("GI(0)", "GI(1)")),),
    ),
    Operator(
        "FusedSwiGluGrad",
        "gradient of FusedSwiGlu",
        (port("dy", "*R"), port("gate", "*R"), port("up", "*R")),
        (optional("dgate", "*R"), optional("dup", "*R")),
        swiglu_grad,
        in_place=(0,),
    ),
    Operator(
        "FusedColumnSum",
        "the sum over every axis but the last: the gradient of a bias",
        (port("x", "*R,N"),),
        (port("y", "N"),),
        column_sum,
        workspace=lambda sizes: row_partials(sizes["R"], sizes["N"], 1),
    ),
)
