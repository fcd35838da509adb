"""What the passes that choose native operators have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

__all__ = ["EMPTY", "statistic"]

EMPTY: npt.NDArray[Any] = np.zeros(0, np.float32)
"""Stands for an absent bias, mask or residual: native operators never leave an input out."""


def statistic(
    value: ir.Value,
    like: ir.Value | None = None,
    *,
    drop: int = 0,
    shape: tuple[int, ...] | None = None,
    dtype: ir.DataType = ir.DataType.FLOAT,
) -> None:
    """Type an output meant for the backward node: as `like` without its last axes, or of `shape`."""
    value.type = ir.TensorType(dtype)
    if shape is not None:
        value.shape = ir.Shape(shape)
    elif like is not None and like.shape is not None:
        value.shape = ir.Shape(list(like.shape)[: len(like.shape) - drop])
