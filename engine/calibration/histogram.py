"""A histogram of a stream: constant memory, one pass, whatever the range turns out to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BINS", "Histogram"]

Array = npt.NDArray[Any]
BINS = 2048


@dataclass
class Histogram:
    """Counts in equal bins over [low, low + BINS·width).

    A value outside makes the bins twice as wide until it fits: two neighbours merge exactly, so that no value
    has to be seen again.
    """

    low: float = 0.0
    width: float = 0.0
    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, values: Array) -> None:
        """Count finite values."""
        if not values.size:
            return
        least, most = float(values.min()), float(values.max())
        if self.width == 0.0:
            self._begin(least, most)
        self._reach(least, most)
        places = ((values.ravel() - self.low) / self.width).astype(np.int64)
        self.counts += np.bincount(np.clip(places, 0, BINS - 1), minlength=BINS)

    def centres(self) -> Array:
        return self.low + (np.arange(BINS) + 0.5) * self.width

    def quantile(self, share: float) -> float:
        """The value that `share` of all counts lie below, to half a bin."""
        running = np.cumsum(self.counts)
        place = int(np.searchsorted(running, share * running[-1]))
        return float(self.centres()[min(place, BINS - 1)])

    def _begin(self, least: float, most: float) -> None:
        """Zero is a bin's edge from the start, since quantization treats it apart."""
        span = max(most - min(least, 0.0), max(most, 0.0) - least, 1e-30)
        self.width = span * 1.001 / (BINS - 1)
        self.low = np.floor(min(least, 0.0) / self.width) * self.width

    def _reach(self, least: float, most: float) -> None:
        while least < self.low:
            self._widen(below=True)
        while most >= self.low + BINS * self.width:
            self._widen(below=False)

    def _widen(self, *, below: bool) -> None:
        merged = self.counts.reshape(-1, 2).sum(axis=1)
        empty = np.zeros(BINS // 2, np.int64)
        if below:
            self.low -= BINS * self.width
        self.counts = np.concatenate([empty, merged] if below else [merged, empty])
        self.width *= 2
