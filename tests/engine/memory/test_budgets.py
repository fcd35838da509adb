"""Amounts of memory as text: what a message names as needed is enough when it is given back as a budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuseline.engine.errors import FuselineError
from fuseline.engine.memory.options import parse_sizes
from fuseline.engine.memory.planning import MemoryPlan, OverBudgetError, amount, parse_budget, within
from fuseline.engine.model import Model
from fuseline.engine.training.budget import check_planned

TEXT = '<ir_version: 10, opset_import: ["" : 20]> g (float[N] x) => (float[N] y) { y = Relu(x) }'


def test_a_fraction_may_be_of_more_than_the_model_holds() -> None:
    plans = [MemoryPlan("", "", Model.from_text(TEXT), 100, 0.0)]
    with pytest.raises(OverBudgetError):
        within(plans, 0.5)
    assert within(plans, 0.5, 1000) == (plans[0], 500)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (["batch=9223372036854775808"], "larger than any array"),
        (["batch=3", "batch=8"], "'batch' is given as 3 and as 8"),
    ],
)
def test_sizes_that_cannot_be(sizes: list[str], said: str) -> None:
    assert parse_sizes(["batch=3", "batch=3"]) == {"batch": 3}
    with pytest.raises(FuselineError, match=said):
        parse_sizes(sizes)


@pytest.mark.parametrize(("optimize", "arena"), [("basic", None), ("all", False), (None, True)])
def test_what_would_not_keep_to_a_plan_is_refused(optimize: str | None, arena: bool | None) -> None:
    check_planned("none", False)
    with pytest.raises(FuselineError, match="a memory_budget"):
        check_planned(optimize, arena)


@given(st.integers(1, 10**12))
def test_what_is_needed_is_rounded_up_and_a_budget_down(size: int) -> None:
    assert size <= parse_budget(amount(size), 1) <= 1.01 * size
    assert 0.99 * size <= parse_budget(amount(size, floor=True), 1) <= size


def test_the_least_that_is_named_fits() -> None:
    made = Model.from_text(TEXT)
    plans = [MemoryPlan(name, name, made, peak, 0.0) for name, peak in (("", 50_000_000), ("a", 22_949_312))]
    with pytest.raises(OverBudgetError, match=r"into 22\.9 MB; the smallest reachable is 23\.0 MB \(a,"):
        within(plans, "22.94MB")
    assert within(plans, "23.0 MB")[0].name == "a"
    assert within(plans, 0.46) == (plans[1], 23_000_000)
    assert within(plans, 1.0)[0].name == ""


@pytest.mark.parametrize(
    ("budget", "bytes_"),
    [
        (" 2 gb ", 2e9),
        ("1.5GiB", 1.5 * 2**30),
        ("10 MB", 1e7),
        ("0.5", 500),
        (0.5, 500),
        (1, 1000),
        ("7b", 7),
    ],
)
def test_budgets_are_read(budget: str | float, bytes_: float) -> None:
    assert parse_budget(budget, 1000) == bytes_
    if isinstance(budget, float):
        assert parse_budget(np.float32(budget), 1000) == bytes_  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("2000000", "'2000000' has no unit"),
        ("2", "'2' has no unit"),
        (2_000_000, "2000000 is no fraction"),
        (0, "0 is no fraction"),
        (True, "True is no fraction"),
        ("0.0000001KB", "less than a byte"),
        ([1], r"\[1\] is no fraction"),
        (Path("2GB"), "is no fraction"),
        ("2 GB/s", "'2 GB/s' is no amount"),
        ("-2GB", "'-2GB' is no amount"),
        ("0", "'0' is no amount"),
    ],
)
def test_what_is_no_budget_is_refused(budget: object, said: str) -> None:
    with pytest.raises(FuselineError, match=said) as caught:
        parse_budget(budget, 1000)  # type: ignore[arg-type]
    assert 'write "2GB", "500MB", or 0.5' in str(caught.value)
