"""Intervals of medians, and when a ratio may be shown."""

from __future__ import annotations

from itertools import product
from statistics import median

import pytest

from fuseline.tools.measuring.intervals import FEWEST, Interval, differences, interval, ratios
from fuseline.tools.measuring.timing import take_turns


@pytest.mark.parametrize("count", [6, 9, 10])
def test_the_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    """Each of n draws is below the true median as often as above: all 2ⁿ cases, counted out."""
    held = 0
    for signs in product((-1.0, 1.0), repeat=count):
        values = [sign * (1 + i / count) for i, sign in enumerate(signs)]
        held += interval(values).holds(0.0)
    assert held / 2**count >= 0.95


def test_more_rounds_cut_outliers_off() -> None:
    found = interval([1.0] * 14 + [100.0])
    assert (found.low, found.middle, found.high) == (1.0, 1.0, 1.0)
    few = interval([1.0] * 5 + [100.0])
    assert few.high == 100.0, "six rounds cannot exclude it"


def test_too_few_rounds() -> None:
    with pytest.raises(ValueError, match="an interval needs 6 values, and these are 5"):
        interval([1.0] * (FEWEST - 1))


def test_a_wide_ratio_says_nothing() -> None:
    assert ratios([2.0, 2.1, 1.9, 2.0, 2.0, 2.05], [1.0] * 6).meaningful
    assert not ratios([2.0, 3.0, 1.0, 2.0, 2.5, 1.5], [1.0] * 6).meaningful
    assert not Interval(0.0, 0.0, 0.0).meaningful


def test_rounds_are_compared_with_their_own() -> None:
    """A machine that becomes slower does not blur the difference."""
    slower = [float(i) for i in range(1, 10)]
    assert ratios([2 * x for x in slower], slower) == Interval(2.0, 2.0, 2.0)
    found = differences([x + 1 for x in slower], slower)
    assert found == Interval(1.0, 1.0, 1.0)
    assert not found.holds(0.0)


def test_turns_alternate_and_begin_with_runs_that_do_not_count() -> None:
    now = 0.0
    seen: list[str] = []

    def runs(name: str, seconds: float):  # type: ignore[no-untyped-def]
        def run() -> None:
            nonlocal now
            now += seconds
            seen.append(name)

        return run

    variants = {"a": runs("a", 1.0), "b": runs("b", 3.0)}
    samples = take_turns(variants, rounds=3, warmup=1, clock=lambda: now)
    assert samples == {"a": [1.0] * 3, "b": [3.0] * 3}
    assert "".join(seen[4:]) == "aabb" + "bbaa" + "aabb"
    assert median(samples["a"]) == 1.0
