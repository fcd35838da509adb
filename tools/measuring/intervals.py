"""Medians with intervals, and when a ratio may be shown.

The interval of a median is made of order statistics, so that nothing is assumed about how times are
distributed: the k-th smallest and the k-th largest of n values enclose the median with a probability that
follows from tossing n coins. Two contenders are compared round by round, which cancels what disturbs both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb
from statistics import median

__all__ = ["FEWEST", "Interval", "differences", "interval", "ratios"]

CONFIDENCE = 0.95
FEWEST = 6
"""Below so many rounds no order statistics enclose the median with that confidence."""
WIDEST = 0.2
"""The width of an interval, relative to its middle, above which a ratio says nothing."""


@dataclass(frozen=True)
class Interval:
    """A median and the bounds that enclose it."""

    low: float
    middle: float
    high: float

    @property
    def meaningful(self) -> bool:
        """Whether it is narrow enough for a ratio to be shown."""
        return self.middle > 0 and (self.high - self.low) / self.middle <= WIDEST

    def holds(self, value: float) -> bool:
        """Whether the value is one of those that the measurement does not exclude."""
        return self.low <= value <= self.high

    def scaled(self, factor: float) -> Interval:
        return Interval(self.low * factor, self.middle * factor, self.high * factor)

    def text(self, digits: int = 2) -> str:
        return f"{self.middle:.{digits}f} ({self.low:.{digits}f} … {self.high:.{digits}f})"

    def to_json(self) -> dict[str, float]:
        return {key: float(f"{value:.6g}") for key, value in asdict(self).items()}


def interval(values: Sequence[float]) -> Interval:
    """The median of at least `FEWEST` values and what encloses it."""
    if len(values) < FEWEST:
        raise ValueError(f"an interval needs {FEWEST} values, and these are {len(values)}")
    ordered, cut = sorted(values), _cut(len(values))
    return Interval(ordered[cut], median(ordered), ordered[-1 - cut])


def ratios(above: Sequence[float], below: Sequence[float]) -> Interval:
    """How many times as large `above` is, round by round."""
    return interval([a / b for a, b in zip(above, below, strict=True)])


def differences(more: Sequence[float], less: Sequence[float]) -> Interval:
    """By how much `more` is larger, round by round."""
    return interval([a - b for a, b in zip(more, less, strict=True)])


def _cut(count: int) -> int:
    """How many values may be cut off at either end while the rest encloses the median as surely as wanted."""
    outside, cut = 0.0, 0
    for k in range(count // 2):
        outside += 2 * comb(count, k) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        cut = k
    return cut
