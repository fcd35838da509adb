"""The product behind the gradient of a linear layer's weight."""

from __future__ import annotations

from fuseline.kernels.operator import Array, Operator, Sizes, optional, port
from fuseline.kernels.workspace import lines, padded

__all__ = ["WEIGHT_GRADIENT_OPERATORS"]


def weight_grad(a: Array, b: Array) -> tuple[Array, ...]:
    left, right = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
    return left.T @ right, left.sum(0)


def _panels(sizes: Sizes) -> int:
    """All of b in panels."""
    return lines(sizes["R"] * padded(sizes["K"]))


def _tiles(sizes: Sizes, threads: int) -> int:
    """Per thread a tile's rows of a block of the depth."""
    rows, columns = sizes["N"], sizes["K"]
    blocks, across = -(-rows // 6), max(1, -(-columns // 768))
    down = max(min(-(-16 // across), blocks // 4), -(-blocks // 16), 1)
    tile = -(-blocks // down) * (256 * 6 + 16 + 8)
    return min(threads, down * across) * lines(tile)


WEIGHT_GRADIENT_OPERATORS = (
    Operator(
        "FusedWeightGrad",
        "aᵀ·b over all leading axes, and the sum of a's columns: with a = dy and b = x, the gradients of a "
        "linear layer's weight [out, in] and bias",
        (port("a", "*R,N"), port("b", "*R,K")),
        (port("c", "N,K"), optional("a_sum", "N")),
        weight_grad,
        workspace=_panels,
        task_workspace=_tiles,
        product=True,
    ),
)
