"""gelu(x + bias), by the error function and by its tanh approximation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fuseline.kernels.operator import Array, GradientNode, Operator, optional, port
from fuseline.kernels.workspace import row_partials

__all__ = ["GELU_OPERATORS"]

_erf = np.vectorize(math.erf, otypes=[np.float64])
_ROOT_2_OVER_PI = math.sqrt(2 / math.pi)


def _erf_parts(x: Array) -> tuple[Array, Array]:
    cdf = 0.5 * (1 + _erf(x / math.sqrt(2)))
    return x * cdf, cdf + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _tanh_parts(x: Array) -> tuple[Array, Array]:
    t = np.tanh(_ROOT_2_OVER_PI * (x + 0.044715 * x**3))
    inner = _ROOT_2_OVER_PI * (1 + 3 * 0.044715 * x * x)
    return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner


def _references(
    parts: Callable[[Array], tuple[Array, Array]],
) -> tuple[Callable[..., tuple[Array, ...]], Callable[..., tuple[Array, ...]]]:
    def forward(x: Array, bias: Array) -> tuple[Array, ...]:
        value = x.astype(np.float64) + (bias if bias.size else 0)
        return (parts(value)[0].astype(x.dtype),)

    def backward(dy: Array, x: Array, bias: Array) -> tuple[Array, ...]:
        value = x.astype(np.float64) + (bias if bias.size else 0)
        dx = dy * parts(value)[1]
        dbias = dx.sum(tuple(range(x.ndim - 1))) if bias.size else bias
        return dx.astype(x.dtype), dbias.astype(x.dtype)

    return forward, backward


def _pair(name: str, form: str, parts: Callable[[Array], tuple[Array, Array]]) -> tuple[Operator, Operator]:
    forward, backward = _references(parts)
    return (
        Operator(
            name,
            f"gelu(x + bias), {form}",
            (port("x", "*R,N"), port("bias", "N?")),
            (port("y", "*R,N"),),
            forward,
            gradient=(GradientNode(f"{name}Grad", ("GO(0)", "I(0)", "I(1)"), ("GI(0)", "GI(1)")),),
            in_place=(0,),
        ),
        Operator(
            f"{name}Grad",
            f"gradient of {name}, the bias's included",
            (port("dy", "*R,N"), port("x", "*R,N"), port("bias", "N?")),
            (optional("dx", "*R,N"), optional("dbias", "N?")),
            backward,
            workspace=lambda sizes: row_partials(sizes["R"], sizes["N"], 1),
            in_place=(0,),
        ),
    )


GELU_OPERATORS = (
    *_pair("FusedBiasGelu", "by the error function", _erf_parts),
    *_pair("FusedBiasGeluTanh", "by the tanh approximation", _tanh_parts),
)
