"""Integer grids: from a range of real numbers to scale and zero point, and from arrays to integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array",
    "Grid",
    "Quantized",
    "quantize_array",
    "quantize_weight",
    "scale_and_zero",
    "swallowed",
    "unfit",
]

Array = npt.NDArray[Any]

# The smallest scale: dividing by it must not overflow float32.
_TINY = 1e-30
# A row that moves by more than this share of itself is lost; so many may be.
_LOST, _LOST_ROWS = 0.25, 0.01


@dataclass(frozen=True)
class Grid:
    """The integers that stand for real numbers.

    `reduced` leaves one bit unused: processors without dot-product instructions add pairs of 8-bit products
    in 16 bits and saturate otherwise.
    """

    signed: bool = True
    symmetric: bool = True
    reduced: bool = False
    bits: int = 8

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int8 if self.signed else np.uint8)

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer in use; a signed symmetric grid is as long on either side."""
        bits = self.bits - 1 if self.reduced else self.bits
        if not self.signed:
            return 0, 2**bits - 1
        top = 2 ** (bits - 1) - 1
        return (-top if self.symmetric else -top - 1), top

    @property
    def steps(self) -> int:
        low, high = self.limits
        return high - low


@dataclass(frozen=True)
class Quantized:
    """Integers with the scale and zero point of each channel (or of all of them, as arrays of no axes)."""

    values: Array
    scale: Array
    zero: Array
    axis: int | None = None

    def restored(self) -> Array:
        """The real numbers that the integers stand for."""
        scale, zero = (_along(a, self.values.ndim, self.axis) for a in (self.scale, self.zero))
        return (self.values.astype(np.float32) - zero.astype(np.float32)) * scale


def unfit(array: Array) -> str | None:
    """Why no grid can stand for the numbers of a weight, or None."""
    if not np.isfinite(array).all():
        return "holds NaN or infinities"
    largest = float(np.abs(array).max(initial=0.0))
    if 0.0 < largest <= 255 * _TINY:
        return f"reaches no more than {largest:.3g}, too little for a scale"
    return None


def swallowed(rows: Array, grid: Grid) -> str | None:
    """Why rows that are read one by one would be lost by one scale for each of their columns, or None."""
    integers = quantize_weight(rows, grid, axis=1)
    exact = rows.astype(np.float64)
    size = np.linalg.norm(exact, axis=1)
    lost = np.linalg.norm(integers.restored() - exact, axis=1) > _LOST * size
    share = int(np.count_nonzero(lost)) / max(1, int(np.count_nonzero(size)))
    if share <= _LOST_ROWS:
        return None
    largest = int(size.argmax())
    return (
        f"would lose {share:.0%} of its rows beside row {largest}, which is as large as {size[largest]:.3g}"
    )


def scale_and_zero(low: Array | float, high: Array | float, grid: Grid) -> tuple[Array, Array]:
    """Scale (float32) and zero point of ranges; zero itself is always on the grid, so padding stays exact."""
    lowest, highest = grid.limits
    below = np.minimum(np.asarray(low, np.float64), 0.0)
    above = np.maximum(np.asarray(high, np.float64), 0.0)
    if grid.symmetric:
        reach = np.maximum(-below, above)
        middle = 0 if grid.signed else (highest + 1) // 2
        scale = 2 * reach / grid.steps if grid.signed else reach / (highest - middle)
        zero = np.full(np.shape(scale), middle)
    else:
        scale = (above - below) / grid.steps
        scale = np.where(scale > _TINY, scale, 1.0)
        zero = np.clip(np.rint(lowest - below / scale), lowest, highest)
    scale = np.where(scale > _TINY, scale, 1.0)
    return scale.astype(np.float32), np.asarray(zero).astype(grid.dtype)


def quantize_array(array: Array, scale: Array, zero: Array, grid: Grid, axis: int | None = None) -> Array:
    """Integers of the grid's type; the arithmetic is QuantizeLinear's (divide, round half to even, add)."""
    lowest, highest = grid.limits
    scale, zero = _along(scale, array.ndim, axis), _along(zero, array.ndim, axis)
    integers = np.rint(array / scale) + zero.astype(np.int32)
    made: Array = np.clip(integers, lowest, highest).astype(grid.dtype)
    return made


def quantize_weight(array: Array, grid: Grid, axis: int | None) -> Quantized:
    """A weight by the range of each channel along `axis`, or of the whole."""
    others = None if axis is None else tuple(i for i in range(array.ndim) if i != axis % array.ndim)
    low, high = (f(array, axis=others, initial=0.0) for f in (np.min, np.max))
    scale, zero = scale_and_zero(low, high, grid)
    return Quantized(quantize_array(array, scale, zero, grid, axis), scale, zero, axis)


def _along(array: Array, rank: int, axis: int | None) -> Array:
    """One number per channel, shaped to broadcast along `axis`."""
    if axis is None or np.ndim(array) == 0:
        return np.asarray(array)
    shape = [1] * rank
    shape[axis] = -1
    return np.reshape(array, shape)
