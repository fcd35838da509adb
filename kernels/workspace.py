"""Sizes of scratch memory, as the native routines lay it out."""

from __future__ import annotations

__all__ = ["lines", "padded", "row_partials"]

_PANEL = 32  # columns that products handle together, at the widest instruction set
_CHUNKS, _CHUNK_COST = 32, 1 << 14


def lines(floats: int) -> int:
    """Bytes of so many floats, in whole cache lines."""
    return -(-floats // 16) * 64


def padded(columns: int) -> int:
    """Columns in whole panels."""
    return -(-columns // _PANEL) * _PANEL


def row_partials(rows: int, width: int, sums: int) -> int:
    """Bytes of the partial sums over rows that chunks keep for themselves, each `sums` rows of `width`."""
    chunks = max(1, min(rows * max(width, 1) // _CHUNK_COST, _CHUNKS, rows))
    return lines(chunks * width * sums)
