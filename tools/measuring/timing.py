"""Fair timing: the rivals take turns in one process, so that all of them see the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles

__all__ = ["Run", "interleave", "lower_quartile", "take_turns"]

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
    """Seconds per call of every variant, by name: one number for all its turns."""
    samples = take_turns(variants, rounds, minimum, warmup, clock)
    return {name: statistic(values) for name, values in samples.items()}


def take_turns(
    variants: Mapping[str, Run],
    rounds: int,
    minimum: float = 0.02,
    warmup: int = 2,
    clock: Clock = time.perf_counter,
    after_round: Callable[[int], None] = lambda done: None,
) -> dict[str, list[float]]:
    """Seconds per call of every variant in each round; in a round each has its turn.

    A turn repeats a quick variant until it has run for ``minimum`` seconds, so that the clock's grain and a
    single interruption do not matter. It begins with runs that are not counted, as long again: the threads of
    the variant before go on spinning for a while, and its data fills the caches. Every other round goes the
    other way round, so that nobody always comes behind the same rival.
    """
    repeats = {}
    for name, run in variants.items():
        for _ in range(warmup):
            run()
        repeats[name] = max(1, round(minimum / max(_time(run, 1, clock), 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    for done in range(1, rounds + 1):
        for name in order:
            _time(variants[name], repeats[name], clock)
            samples[name].append(_time(variants[name], repeats[name], clock))
        order.reverse()
        after_round(done)
    return samples


def lower_quartile(values: list[float]) -> float:
    """A time that a quarter of the rounds stay below: what disturbs them only ever adds to it."""
    return quantiles(values, n=4)[0]


def _time(run: Run, repeats: int, clock: Clock) -> float:
    start = clock()
    for _ in range(repeats):
        run()
    return (clock() - start) / repeats
