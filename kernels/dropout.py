"""The dropout masks of the native operators, in numpy: a function of (seed, stream, row, column)."""

from __future__ import annotations

import numpy as np

from fuseline.kernels.operator import Array

__all__ = ["dropout_key", "dropout_mask"]

_BITS_64 = 2**64 - 1


def dropout_key(seed: int, stream: int) -> int:
    """The key of one node (its ``stream``) in one step (its ``seed``), as a signed 64-bit integer."""
    x = (seed + (stream + 1) * 0xD1342543DE82EF95) & _BITS_64
    for _ in range(2):
        x = ((x ^ (x >> 32)) * 0xD6E8FEB86659FD93) & _BITS_64
    x ^= x >> 32
    return x - 2**64 if x >= 2**63 else x


def dropout_mask(key: int, rows: int, columns: int, ratio: float) -> Array:
    """Factors of shape ``[rows, columns]``: 0, or 1/(1 − ratio)."""
    ratio = float(np.float32(ratio))
    with np.errstate(over="ignore"):
        x = np.uint64(key & _BITS_64) + np.arange(rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
        low = x.astype(np.uint32)[:, None]
        high = (x >> np.uint64(32)).astype(np.uint32)[:, None]
        bits = _mix(_mix(np.arange(columns, dtype=np.uint32) + low) ^ high)
    return np.where(bits >= np.uint32(ratio * 2**32), np.float32(1 / (1 - ratio)), np.float32(0))


def _mix(x: Array) -> Array:
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    mixed: Array = x ^ (x >> np.uint32(16))
    return mixed
