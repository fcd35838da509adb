"""Layer and root-mean-square normalisation over the last axis."""

from __future__ import annotations

import numpy as np

from fuseline.kernels.operator import Array, GradientNode, Operator, optional, port
from fuseline.kernels.workspace import lines, row_partials

__all__ = ["NORM_OPERATORS"]


def layer_norm(x: Array, scale: Array, bias: Array, epsilon: float = 1e-5) -> tuple[Array, ...]:
    mean = x.mean(-1)
    inv_std = 1 / np.sqrt(x.var(-1) + epsilon)
    y = (x - mean[..., None]) * inv_std[..., None] * scale
    return (y + bias if bias.size else y), mean, inv_std


def layer_norm_grad(dy: Array, x: Array, scale: Array, mean: Array, inv_std: Array) -> tuple[Array, ...]:
    h = (x - mean[..., None]) * inv_std[..., None]
    g = dy * scale
    dx = g - g.mean(-1, keepdims=True) - h * (g * h).mean(-1, keepdims=True)
    rows = tuple(range(x.ndim - 1))
    return dx * inv_std[..., None], (dy * h).sum(rows), dy.sum(rows)


def rms_norm(x: Array, scale: Array, epsilon: float = 1e-6, offset: float = 0.0) -> tuple[Array, ...]:
    inv_rms = 1 / np.sqrt((x * x).mean(-1) + epsilon)
    return x * inv_rms[..., None] * (offset + scale), inv_rms, np.array([offset], np.float32)


def rms_norm_grad(dy: Array, x: Array, scale: Array, inv_rms: Array, state: Array) -> tuple[Array, ...]:
    h = x * inv_rms[..., None]
    g = dy * (state[0] + scale)
    dx = (g - h * (g * h).mean(-1, keepdims=True)) * inv_rms[..., None]
    return dx, (dy * h).sum(tuple(range(x.ndim - 1)))


NORM_OPERATORS = (
    Operator(
        "FusedLayerNorm",
        "(x − mean)·inv_std·scale + bias over the last axis",
        (port("x", "*R,N"), port("scale", "N"), port("bias", "N?")),
        (port("y", "*R,N"), optional("mean", "*R"), optional("inv_std", "*R")),
        layer_norm,
        {"epsilon": 1e-5},
        (
            GradientNode(
                "FusedLayerNormGrad",
                ("GO(0)", "I(0)", "I(1)", "O(1)", "O(2)"),
                ("GI(0)", "GI(1)", "GI(2)"),
            ),
        ),
        lambda sizes: lines(2 * sizes["R"]),
    ),
    Operator(
        "FusedLayerNormGrad",
        "gradient of FusedLayerNorm from the statistics it kept",
        (
            port("dy", "*R,N"),
            port("x", "*R,N"),
            port("scale", "N"),
            port("mean", "*R"),
            port("inv_std", "*R"),
        ),
        (optional("dx", "*R,N"), optional("dscale", "N"), optional("dbias", "N")),
        layer_norm_grad,
        workspace=lambda sizes: row_partials(sizes["R"], sizes["N"], 2),
        in_place=(0,),
    ),
    Operator(
        "FusedRmsNorm",
        "x / rms(x)·(offset + scale) over the last axis; offset 1 for Gemma",
        (port("x", "*R,N"), port("scale", "N")),
        (port("y", "*R,N"), optional("inv_rms", "*R"), optional("state", "1")),
        rms_norm,
        {"epsilon": 1e-6, "offset": 0.0},
        (
            GradientNode(
                "FusedRmsNormGrad",
                ("GO(0)", "I(0)", "I(1)", "O(1)", "O(2)"),
                ("GI(0)", "GI(1)"),
            ),
        ),
        lambda sizes: lines(sizes["R"]),
    ),
    Operator(
        "FusedRmsNormGrad",
        "gradient of FusedRmsNorm from the statistics it kept",
        (
            port("dy", "*R,N"),
            port("x", "*R,N"),
            port("scale", "N"),
            port("inv_rms", "*R"),
            port("state", "1"),
        ),
        (optional("dx", "*R,N"), optional("dscale", "N")),
        rms_norm_grad,
        workspace=lambda sizes: row_partials(sizes["R"], sizes["N"], 1),
        in_place=(0,),
    ),
)
