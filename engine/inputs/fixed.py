"""Inputs that are really parameters of an operator: shapes, axes, repeats, counts, thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.model import Model

__all__ = ["fixed_content"]

Array = npt.NDArray[Any]

_SHAPE_INPUTS = {
    ("Reshape", 1),
    ("Expand", 1),
    ("ConstantOfShape", 0),
    ("Resize", 3),
    ("AffineGrid", 1),
    ("CenterCropPad", 1),
}
_AXES_INPUTS = {("Squeeze", 1), ("Unsqueeze", 1), ("CumSum", 1), ("Pad", 3)}
_ZERO_INPUTS = {("Pad", 1), ("Trilu", 1), ("Slice", 1)}
_ONE_INPUTS = {("Tile", 1), ("Col2Im", 1), ("Col2Im", 2), ("Slice", 4), ("TopK", 1), ("Upsample", 1)}
_SCALARS: dict[tuple[str, int], Any] = {
    ("Loop", 0): 3,
    ("Loop", 1): True,
    ("Range", 0): 0,
    ("Range", 1): 5,
    ("Range", 2): 1,
    ("OneHot", 1): 8,
    ("NonMaxSuppression", 2): 3,
    ("NonMaxSuppression", 3): 0.5,
    ("NonMaxSuppression", 4): 0.1,
    ("Dropout", 1): 0.5,
    ("Dropout", 2): True,
}
_SAMPLE_RATES = ("sr", "sample_rate", "sampling_rate")


def fixed_content(model: Model, node: ir.Node, index: int, source: ir.Value) -> Array | None:
    """What `source`, used as input `index` of `node`, has to hold; None if that is free."""
    if node.domain not in ("", "ai.onnx") or source.dtype is None:
        return None
    dtype = source.dtype.numpy()
    key = (node.op_type, index)
    if source.name in _SAMPLE_RATES:
        return np.full(_static_shape(source), 16000, dtype)
    if key in _SCALARS:
        return np.full(_static_shape(source), _SCALARS[key], dtype)
    if key in _SHAPE_INPUTS:
        return _like_output(node, dtype)
    if key in _ZERO_INPUTS:
        return np.zeros(_static_shape(source), dtype)
    if key in _ONE_INPUTS:
        return np.ones(_static_shape(source), dtype)
    if key in _AXES_INPUTS or (node.op_type.startswith("Reduce") and index == 1):
        shape = _static_shape(source)
        return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
    return None


def _static_shape(value: ir.Value) -> tuple[int, ...]:
    """The declared shape with 1 for free dimensions."""
    return tuple(d if isinstance(d, int) else 1 for d in value.shape or ())


def _like_output(node: ir.Node, dtype: np.dtype[Any]) -> Array | None:
    shape = node.outputs[0].shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return np.array([int(d) for d in shape if isinstance(d, int)], dtype)
