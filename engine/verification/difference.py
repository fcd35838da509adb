"""How far two results are apart that count as equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fuseline.engine.verification.verifier import Results

__all__ = ["largest_difference"]


def largest_difference(before: Results, after: Results) -> float:
    """The largest difference of two floats, as a part of the largest magnitude in their tensor."""
    return max(_differences(before, after), default=0.0)


def _differences(before: Results, after: Results) -> Iterator[float]:
    pairs = [*zip(before.outputs, after.outputs, strict=False)]
    pairs += zip(before.gradients or (), after.gradients or (), strict=False)
    for was, now in pairs:
        yield from _of_one_set(was, now)


def _of_one_set(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[float]:
    for name in was.keys() & now.keys():
        one, other = was[name], now[name]
        if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray) or one.dtype.kind != "f":
            continue
        if one.shape != other.shape or not one.size:
            continue
        with np.errstate(all="ignore"):
            first, second = one.astype(np.float64), other.astype(np.float64)
            apart, size = np.abs(first - second), np.abs(first)
        top = float(np.max(size[np.isfinite(size)], initial=0.0))
        worst = float(np.max(apart[np.isfinite(apart)], initial=0.0))
        yield worst / top if top else worst
