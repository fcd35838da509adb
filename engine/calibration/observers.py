"""Observers: from what was seen of a value to the range that its integers shall cover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fuseline.engine.calibration.table import Statistics
from fuseline.engine.errors import FuselineError, did_you_mean
from fuseline.engine.quantization.grid import Grid, quantize_array, scale_and_zero

__all__ = ["OBSERVERS", "Observer", "choose_range"]

Array = npt.NDArray[Any]
Observer = Literal["min-max", "moving-average", "percentile", "entropy", "mse"]
OBSERVERS: tuple[Observer, ...] = get_args(Observer)

# Parts of the whole range that the searching observers try.
_PARTS = np.linspace(1.0, 0.1, 91)


def choose_range(
    seen: Statistics, observer: Observer, grid: Grid, *, percentile: float = 99.99
) -> tuple[float, float]:
    """The range [low, high] that the observer chooses for a grid."""
    if observer == "min-max":
        return seen.least, seen.most
    if observer == "moving-average":
        return seen.average_least, seen.average_most
    if observer == "percentile":
        return _percentile(seen, percentile, grid)
    if observer == "entropy":
        return _search(seen, grid, _divergence)
    if observer == "mse":
        return _search(seen, grid, _squared_error)
    hint = did_you_mean(observer, OBSERVERS) or f"the observers are {', '.join(OBSERVERS)}"
    raise FuselineError(f"there is no observer {observer!r}", hint=hint)


def _percentile(seen: Statistics, percentile: float, grid: Grid) -> tuple[float, float]:
    """What is left when the rarest values are cut off: on both sides, or of the magnitudes."""
    if not 0 < percentile <= 100:
        raise FuselineError(f"the percentile is {percentile:g}, and has to lie above 0 and not above 100")
    outside = 1 - percentile / 100
    if not grid.symmetric:
        low, high = (seen.histogram.quantile(s) for s in (outside / 2, 1 - outside / 2))
        return max(low, seen.least), min(high, seen.most)
    magnitudes, counts = np.abs(seen.histogram.centres()), seen.histogram.counts
    order = np.argsort(magnitudes)
    running = np.cumsum(counts[order])
    reach = float(
        magnitudes[order][min(np.searchsorted(running, (1 - outside) * running[-1]), len(order) - 1)]
    )
    return max(-reach, seen.least), min(reach, seen.most)


def _search(
    seen: Statistics, grid: Grid, loss: Callable[[Array, Array, float, float, Grid], float]
) -> tuple[float, float]:
    """The part of the whole range with the least loss; the widest of equals."""
    occupied = seen.histogram.counts > 0
    centres, counts = seen.histogram.centres()[occupied], seen.histogram.counts[occupied]
    centres = np.clip(centres, seen.least, seen.most)
    losses = [loss(centres, counts, seen.least * p, seen.most * p, grid) for p in _PARTS]
    part = float(_PARTS[int(np.argmin(losses))])
    return seen.least * part, seen.most * part


def _squared_error(centres: Array, counts: Array, low: float, high: float, grid: Grid) -> float:
    scale, zero = scale_and_zero(low, high, grid)
    back = (quantize_array(centres, scale, zero, grid).astype(np.float64) - float(zero)) * float(scale)
    return float((counts * (back - centres) ** 2).sum() / counts.sum())


def _divergence(centres: Array, counts: Array, low: float, high: float, grid: Grid) -> float:
    """How much (Kullback–Leibler) the distribution over the grid says less than the clipped one.

    All bins that fall on one integer share its probability evenly; values cut off count at the edges.
    """
    scale, zero = scale_and_zero(low, high, grid)
    level = quantize_array(centres, scale, zero, grid).astype(np.int64) - grid.limits[0]
    inside = (centres >= low) & (centres <= high)
    if not inside.any():
        return float("inf")
    clipped = np.where(inside, counts, 0).astype(np.float64)
    first, last = np.flatnonzero(inside)[[0, -1]]
    clipped[first] += counts[:first].sum()
    clipped[last] += counts[last + 1 :].sum()
    kept = np.where(inside, counts, 0).astype(np.float64)
    mass = np.bincount(level, weights=kept, minlength=grid.steps + 1)
    bins = np.bincount(level, weights=(kept > 0).astype(np.float64), minlength=grid.steps + 1)
    spread = np.divide(mass, bins, out=np.zeros_like(mass), where=bins > 0)[level] * (kept > 0)
    p, q = clipped / clipped.sum(), spread / spread.sum()
    seen = p > 0
    return float((p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-12))).sum())
