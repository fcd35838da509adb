"""Element values for one input, given its role and its resolved shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.errors import ModelError
from fuseline.engine.inputs.interface import Input
from fuseline.engine.inputs.roles import Role

__all__ = ["STYLES", "Padding", "Style", "draw"]

Array = npt.NDArray[Any]

Style = Literal["ordinary", "tame", "large", "limits", "non-finite"]
"""How free values are drawn: floats normal and integers small; floats in (0.1, 1) and integers 1, clear of
poles, logarithms and bounds; integers of 64, for those that are sizes in disguise; integers at the ends of
their range; or floats of which a few are NaN and infinite."""
STYLES: tuple[Style, ...] = ("ordinary", "tame", "large")
Padding = Literal["right", "left", "none", "whole rows"]
"""Where the zeros of a mask are."""

_SMALL = {ir.DataType.UINT8: (0, 256), ir.DataType.INT8: (-128, 128)}
_INTEGER_BOUND = 8


def draw(
    wanted: Input,
    role: Role,
    sizes: Mapping[str, int],
    chance: np.random.Generator,
    style: Style,
    turn: int,
    padding: Padding = "right",
) -> Array:
    """Values of the input's type and shape. `turn` chooses among the alternatives of a switch."""
    shape = tuple(sizes[d] if isinstance(d, str) else d for d in wanted.dims)
    if role.kind == "fixed":
        return np.asarray(role.content)
    if role.kind == "switch":
        return np.full(shape, role.content[turn % len(role.content)], _numpy_type(wanted))
    if wanted.dtype == ir.DataType.STRING:
        words = [f"text {i}" for i in range(int(np.prod(shape)))]
        return np.array(words, dtype=object).reshape(shape)
    dtype = _numpy_type(wanted)
    bound = sizes.get(role.bound, 1) if isinstance(role.bound, str) else role.bound
    if role.kind == "mask":
        return _mask(shape, chance, padding).astype(dtype)
    if role.kind == "positions" and shape:
        row = np.arange(shape[-1]) % (bound or shape[-1] or 1)
        return np.broadcast_to(row, shape).astype(dtype)
    if role.kind == "index":
        return chance.integers(0, max(bound or 1, 1), shape).astype(dtype)
    if role.kind == "length":
        return np.full(shape, max(sizes.values(), default=1), dtype)
    if role.kind == "divisor" and not wanted.dtype.is_floating_point():
        # An integer division by zero ends the process.
        return chance.integers(1, _INTEGER_BOUND, shape).astype(dtype)
    return _free(wanted, shape, dtype, chance, style)


def _free(
    wanted: Input,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    chance: np.random.Generator,
    style: Style,
) -> Array:
    if wanted.dtype == ir.DataType.BOOL:
        return np.asarray(chance.random(shape) < 0.5) if shape else np.array(True)
    if wanted.dtype.is_floating_point():
        drawn = np.asarray(
            chance.uniform(0.1, 1.0, shape) if style == "tame" else chance.standard_normal(shape)
        )
        if style == "non-finite" and drawn.size:
            drawn.flat[chance.integers(0, drawn.size, 3)] = (np.nan, np.inf, -np.inf)
        return drawn.astype(dtype)
    if np.issubdtype(dtype, np.complexfloating):
        return (chance.standard_normal(shape) + 1j * chance.standard_normal(shape)).astype(dtype)
    if style == "limits":
        ends = np.iinfo(dtype)
        return np.asarray(chance.choice(np.array([ends.min, ends.max, 0, 1], dtype), shape))
    if style in ("ordinary", "non-finite"):
        # Scalars and vectors of integers are often sizes or counts, which zero would make degenerate.
        low, high = _SMALL.get(wanted.dtype, (0 if len(shape) > 1 else 1, _INTEGER_BOUND))
    else:
        low, high = (1, 2) if style == "tame" else (64, 65)
    return np.asarray(chance.integers(low, high, shape)).astype(dtype)


def _mask(shape: tuple[int, ...], chance: np.random.Generator, padding: Padding) -> Array:
    """Ones and zeros along the last axis, the first row full; no row is empty unless whole rows are."""
    if not shape:
        return np.array(1)
    length = shape[-1]
    rows = int(np.prod(shape[:-1]))
    kept = chance.integers(max(length // 2, min(1, length)), length + 1, rows)
    if rows:
        kept[0] = length
    if padding == "none":
        kept[:] = length
    if padding == "whole rows":
        kept[rows // 2 :] = 0
    position = np.arange(length)
    if padding == "left":
        position = position[::-1]
    return (position < kept[:, None]).astype(np.int64).reshape(shape)


def _numpy_type(wanted: Input) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = wanted.dtype.numpy()
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "biufc":
        raise ModelError(
            f"input {wanted.name!r} has the type {wanted.dtype.name}, "
            "which ONNX Runtime's Python interface cannot be fed"
        )
    return dtype
