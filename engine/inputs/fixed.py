"""Inputs that are really parameters of an operator: shapes, axes, repeats, counts, thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.operators import record
from fuseline.engine.operators.operator import Feed

__all__ = ["fixed_content"]

Array = npt.NDArray[Any]

_SAMPLE_RATES = ("sr", "sample_rate", "sampling_rate")


def fixed_content(model: Model, node: ir.Node, index: int, source: ir.Value) -> Array | None:
    """What `source`, used as input `index` of `node`, has to hold; None if that is free."""
    operator = record(node)
    if operator is None or source.dtype is None:
        return None
    dtype = source.dtype.numpy()
    feed = operator.feeds.get(index)
    if source.name in _SAMPLE_RATES:
        return np.full(_static_shape(source), 16000, dtype)
    shape = _static_shape(source)
    match feed:
        case None:
            return None
        case Feed.SHAPE:
            return _like_output(node, dtype)
        case Feed.AXES:
            return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
        case Feed.ZEROS | Feed.ONES:
            return np.full(shape, feed is Feed.ONES, dtype)
        case number:
            return np.full(shape, number, dtype)


def _static_shape(value: ir.Value) -> tuple[int, ...]:
    """The declared shape with 1 for free dimensions."""
    return tuple(d if isinstance(d, int) else 1 for d in value.shape or ())


def _like_output(node: ir.Node, dtype: np.dtype[Any]) -> Array | None:
    shape = node.outputs[0].shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return np.array([int(d) for d in shape if isinstance(d, int)], dtype)
