"""Fair timing: the rivals take turns in one process, and the medians are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles

__all__ = ["interleave", "lower_quartile"]

Run = Callable[[], object]
Clock = Callable[[], float]
Statistic = Callable[[list[float]], float]


def interleave(
    variants: Mapping[str, Run],
    rounds: int = 9,
    minimum: float = 0.02,
    warmup: int = 2,
    clock: Clock = time.perf_counter,
    statistic: Statistic = median,
) -> dict[str, float]:
    """Seconds per call of every variant, by name: the median over rounds in which each has its turn.

    A turn repeats a quick variant until it has run for ``minimum`` seconds, so that the clock's grain and a
    single interruption do not matter. It begins with runs that are not counted, as long again: the threads of
    the variant before go on spinning for a while, and its data fills the caches.
    """
    repeats = {}
    for name, run in variants.items():
        for _ in range(warmup):
            run()
        repeats[name] = max(1, round(minimum / max(_time(run, 1, clock), 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            _time(run, repeats[name], clock)
            samples[name].append(_time(run, repeats[name], clock))
    return {name: statistic(values) for name, values in samples.items()}


def lower_quartile(values: list[float]) -> float:
    """A time that a quarter of the rounds stay below: what disturbs them only ever adds to it."""
    return quantiles(values, n=4)[0]


def _time(run: Run, repeats: int, clock: Clock) -> float:
    start = clock()
    for _ in range(repeats):
        run()
    return (clock() - start) / repeats
