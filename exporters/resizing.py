"""Resizing as products with fixed matrices or look-ups: linear in the image, and so is its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from fuseline.exporters.swapping import swapped

__all__ = ["plain_resize", "resizing_matrix"]

_NEAREST = {"nearest": 0.0, "nearest-exact": 0.5}
_SMOOTH = ("linear", "bilinear", "trilinear", "bicubic")
#: Torch's own constant of cubic convolution.
_CUBIC = -0.75


@contextmanager
def plain_resize() -> Iterator[None]:
    """`F.interpolate` from one known size to another, axis by axis."""
    original = F.interpolate

    def interpolate(
        x: Tensor,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
        antialias: bool = False,
    ) -> Tensor:
        axes = x.dim() - 2
        known = all(isinstance(n, int) for n in x.shape[2:])
        if mode not in (*_SMOOTH, *_NEAREST) or antialias or not known:
            return original(x, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
        scales = _each(scale_factor, axes)
        sizes = _each(size, axes)
        for axis in range(axes):
            before, scale = int(x.shape[axis + 2]), scales[axis]
            after = int(before * scale) if scale is not None else int(sizes[axis])
            step = before / after if scale is None or recompute_scale_factor else 1 / scale
            if mode in _NEAREST:
                places = np.floor((np.arange(after) + _NEAREST[mode]) * step).clip(0, before - 1)
                x = x.index_select(axis + 2, torch.tensor(places.astype(int).tolist()))
                continue
            matrix = resizing_matrix(
                before, after, step, cubic=mode == "bicubic", corners=bool(align_corners)
            )
            weights = torch.tensor(matrix.tolist(), dtype=x.dtype)
            x = torch.matmul(x.transpose(axis + 2, -1), weights.t()).transpose(axis + 2, -1)
        return x

    with swapped(F, "interpolate", interpolate):
        yield


def _each(value: Any, axes: int) -> Sequence[Any]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes


def resizing_matrix(
    before: int, after: int, step: float, *, cubic: bool, corners: bool
) -> npt.NDArray[np.float64]:
    """[after, before]: how much of each old place goes into each new one."""
    places = np.arange(after, dtype=np.float64)
    if corners:
        where = places * ((before - 1) / (after - 1) if after > 1 else 0.0)
    else:
        where = (places + 0.5) * step - 0.5
    if not cubic:
        where = where.clip(min=0)
    left = np.floor(where).astype(np.int64)
    part = where - left
    matrix = np.zeros((after, before))
    offsets = (-1, 0, 1, 2) if cubic else (0, 1)
    for offset in offsets:
        weight = _cubic(np.abs(part - offset)) if cubic else (1 - part if offset == 0 else part)
        np.add.at(matrix, (np.arange(after), (left + offset).clip(0, before - 1)), weight)
    return matrix


def _cubic(distance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1
    far = ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
