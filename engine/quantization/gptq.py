"""GPTQ: weights rounded one after the other, each error made up for by those that are still to come."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.quantization.blocks import Blocks, block_range, round_block

__all__ = ["gptq", "output_error"]

Array = npt.NDArray[Any]

# Inputs whose corrections are put off and then made at once, as one matrix product.
_LAZY = 128


def gptq(
    weight: Array, moments: Array, *, bits: int, block: int, symmetric: bool = False, damping: float = 0.01
) -> Blocks:
    """Blocks of a weight [K, N] for inputs whose second moments are XᵀX [K, K]."""
    rows, columns = weight.shape
    padded = -(-rows // block) * block
    left = np.zeros((columns, padded))
    left[:, :rows] = weight.T
    inverse = _inverse_root(moments, padded, damping)
    values = np.zeros((columns, padded), np.uint8)
    scale = np.ones((columns, padded // block), np.float32)
    zero = np.zeros((columns, padded // block), np.uint8)
    lazy = block * max(1, _LAZY // block)
    for start in range(0, padded, lazy):
        stop = min(start + lazy, padded)
        errors = np.zeros((columns, stop - start))
        for place in range(start, stop):
            group = place // block
            if place % block == 0:
                here = left[:, place : place + block].astype(np.float32)
                scale[:, group], zero[:, group] = block_range(here, bits, symmetric=symmetric)
            column = left[:, place]
            whole = round_block(column[:, None].astype(np.float32), scale[:, group], zero[:, group], bits)[
                :, 0
            ]
            values[:, place] = whole
            real = (whole.astype(np.float64) - zero[:, group]) * scale[:, group]
            error = (column - real) / inverse[place, place]
            left[:, place:stop] -= np.outer(error, inverse[place, place:stop])
            errors[:, place - start] = error
        left[:, stop:] -= errors @ inverse[start:stop, stop:]
    return Blocks(values.reshape(columns, -1, block), scale, zero, rows, bits)


def _inverse_root(moments: Array, padded: int, damping: float) -> Array:
    """The upper Cholesky factor of the damped inverse; inputs that were always zero get a moment of one."""
    rows = len(moments)
    full = np.eye(padded)
    full[:rows, :rows] = moments
    diagonal = np.diagonal(full).copy()
    full[np.arange(padded), np.arange(padded)] = np.where(diagonal > 0, diagonal, 1.0)
    full += np.eye(padded) * damping * float(np.diagonal(full)[:rows].mean())
    root: Array = np.linalg.cholesky(np.linalg.inv(full)).T
    return root


def output_error(weight: Array, approximate: Array, moments: Array) -> float:
    """The squared error of X·w over all inputs X, from their second moments alone."""
    difference = (weight - approximate).astype(np.float64)
    return float(np.einsum("kn,kl,ln->", difference, moments, difference, optimize=True))
