"""Weights in blocks of a few bits: each block of a column has a scale (and a zero point) of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Blocks", "block_range", "quantize_blocks", "round_block"]

Array = npt.NDArray[Any]

# How far a block's range is drawn in, in search of the least squared error.
_PARTS = np.linspace(1.0, 0.72, 15)


@dataclass(frozen=True)
class Blocks:
    """Integers [N, blocks, block] with scale and zero point [N, blocks], of a weight [K, N]."""

    values: Array
    scale: Array
    zero: Array
    rows: int
    bits: int

    def restored(self) -> Array:
        """The weight [K, N] that the integers stand for."""
        real = (self.values.astype(np.float32) - self.zero[..., None].astype(np.float32)) * self.scale[
            ..., None
        ]
        return np.ascontiguousarray(real.reshape(len(real), -1)[:, : self.rows].T)

    def packed(self) -> Array:
        """Two integers a byte, the first in the low half, as MatMulNBits has them."""
        return self.values if self.bits == 8 else _halves(self.values)

    def packed_zero(self) -> Array:
        if self.bits == 8:
            return self.zero.reshape(-1)
        even = np.pad(self.zero, ((0, 0), (0, self.zero.shape[1] % 2)))
        return _halves(even).reshape(-1)


def _halves(integers: Array) -> Array:
    low, high = integers[..., 0::2], integers[..., 1::2]
    made: Array = (low | (high << 4)).astype(np.uint8)
    return made


def quantize_blocks(weight: Array, *, bits: int, block: int, symmetric: bool = False) -> Blocks:
    """Round to nearest, with the range of each block that has the least squared error."""
    split = as_blocks(weight, block)
    scale, zero = block_range(split, bits, symmetric=symmetric)
    return Blocks(round_block(split, scale, zero, bits), scale, zero, len(weight), bits)


def as_blocks(weight: Array, block: int) -> Array:
    """[K, N] → [N, blocks, block], filled up with zeros."""
    rows, columns = weight.shape
    filled = np.zeros((columns, -(-rows // block) * block), np.float32)
    filled[:, :rows] = weight.T
    return filled.reshape(columns, -1, block)


def block_range(split: Array, bits: int, *, symmetric: bool) -> tuple[Array, Array]:
    """Scale and zero point of blocks [..., block]: the best of several ranges."""
    best = np.full(split.shape[:-1], np.inf)
    # The whole range, wherever the error of all is too large to be told.
    scale, zero = _candidates(split, bits, 1.0, symmetric)[0]
    for part in _PARTS:
        for candidate in _candidates(split, bits, float(part), symmetric):
            integers = round_block(split, *candidate, bits)
            real = (integers - candidate[1][..., None].astype(np.float32)) * candidate[0][..., None]
            with np.errstate(over="ignore"):
                error = ((real - split) ** 2).sum(axis=-1)
            better = error < best
            best = np.where(better, error, best)
            scale = np.where(better, candidate[0], scale)
            zero = np.where(better, candidate[1], zero)
    return scale.astype(np.float32), zero.astype(np.uint8)


def _candidates(split: Array, bits: int, part: float, symmetric: bool) -> list[tuple[Array, Array]]:
    top, middle = 2**bits - 1, 2 ** (bits - 1)
    low, high = np.minimum(split.min(axis=-1), 0.0) * part, np.maximum(split.max(axis=-1), 0.0) * part
    if symmetric:
        # One more integer below the middle than above: the larger side gets it, by the sign of the scale.
        reach = np.where(-low >= high, low, high)
        scale = -reach / middle
        return [(_safe(scale), np.full(scale.shape, middle, np.uint8))]
    with np.errstate(over="ignore"):
        whole = high - low
    scale = _safe(np.where(np.isfinite(whole), whole / top, high / top - low / top))
    return [(scale, np.clip(np.rint(-low / scale), 0, top).astype(np.uint8))]


def _safe(scale: Array) -> Array:
    made: Array = np.where(np.abs(scale) > 1e-30, scale, 1.0).astype(np.float32)
    return made


def round_block(split: Array, scale: Array, zero: Array, bits: int) -> Array:
    """Integers of blocks [..., block]."""
    integers = np.rint(split / scale[..., None]) + zero[..., None].astype(np.float32)
    made: Array = np.clip(integers, 0, 2**bits - 1).astype(np.uint8)
    return made
