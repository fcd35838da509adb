"""The product behind the gradient of a linear layer's weight."""

from __future__ import annotations

from fuseline.kernels.operator import Array, Operator, optional, port

__all__ = ["WEIGHT_GRADIENT_OPERATORS"]


def weight_grad(a: Array, b: Array) -> tuple[Array, ...]:
    left, right = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
    return left.T @ right, left.sum(0)


WEIGHT_GRADIENT_OPERATORS = (
    Operator(
        "FusedWeightGrad",
        "aᵀ·b over all leading axes, and the sum of a's columns: with a = dy and b = x, the gradients of a "
        "linear layer's weight [out, in] and bias",
        (port("a"), port("b")),
        (port("c"), optional("a_sum")),
        weight_grad,
    ),
)
