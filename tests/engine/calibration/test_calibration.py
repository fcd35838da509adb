"""Calibration: histograms of streams, observers, tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuseline.engine.calibration import OBSERVERS, CalibrationTable, Statistics, calibrate, choose_range
from fuseline.engine.calibration.histogram import BINS, Histogram
from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.quantization.grid import Grid, quantize_array, scale_and_zero

ASYMMETRIC = Grid(signed=False, symmetric=False)


def seen(*batches: np.ndarray) -> Statistics:
    statistics = Statistics()
    for batch in batches:
        statistics.see(batch.astype(np.float32), channels=True)
    return statistics


def error(values: np.ndarray, low: float, high: float, grid: Grid) -> float:
    scale, zero = scale_and_zero(low, high, grid)
    back = (quantize_array(values, scale, zero, grid).astype(np.float64) - float(zero)) * float(scale)
    return float(((back - values) ** 2).mean())


def test_a_histogram_counts_every_value_however_the_range_grows() -> None:
    chance = np.random.default_rng(0)
    histogram = Histogram()
    stream = [chance.normal(size=500) * scale for scale in (0.01, 1.0, 300.0, 5.0)]
    for part in stream:
        histogram.add(part)
    everything = np.concatenate(stream)
    assert histogram.counts.sum() == everything.size
    assert histogram.counts.nbytes == BINS * 8
    for share in (0.05, 0.5, 0.95):
        assert abs(histogram.quantile(share) - np.quantile(everything, share)) <= 2 * histogram.width


def test_a_stream_of_one_value_and_of_zeros_has_a_range() -> None:
    for value in (0.0, 3.5, -2.0):
        statistics = seen(np.full(10, value))
        for observer in OBSERVERS:
            low, high = choose_range(statistics, observer, ASYMMETRIC)
            scale, _ = scale_and_zero(low, high, ASYMMETRIC)
            assert np.isfinite(scale)
            assert scale > 0
            assert error(np.full(10, value), low, high, ASYMMETRIC) <= 1e-4 * max(1.0, value**2)


@pytest.mark.parametrize("grid", [ASYMMETRIC, Grid()])
def test_observers_on_data_with_outliers(grid: Grid) -> None:
    chance = np.random.default_rng(1)
    values = np.concatenate([chance.normal(size=100_000), [60.0, -45.0]])
    statistics = seen(values)
    ranges = {o: choose_range(statistics, o, grid, percentile=99.9) for o in OBSERVERS}
    assert ranges["min-max"] == pytest.approx((-45.0, 60.0))
    assert ranges["percentile"][1] < 4.0
    assert ranges["entropy"][1] < 30.0
    # The squared error of the range that was searched for is the least of all of them.
    errors = {o: error(values, *r, grid) for o, r in ranges.items()}
    assert errors["mse"] <= min(errors.values()) * 1.02


def test_the_moving_average_forgets_slowly() -> None:
    statistics = seen(np.array([-1.0, 1.0]), np.array([-11.0, 21.0]))
    assert (statistics.average_least, statistics.average_most) == pytest.approx((-1.1, 1.2))
    assert (statistics.least, statistics.most) == (-11.0, 21.0)


def test_values_that_are_not_finite_are_counted_and_nothing_else() -> None:
    statistics = seen(np.array([1.0, np.nan, np.inf, -2.0]))
    assert statistics.not_finite == 2
    assert (statistics.least, statistics.most) == (-2.0, 1.0)


def test_an_unknown_observer_is_named() -> None:
    with pytest.raises(FuselineError, match="did you mean 'entropy'"):
        choose_range(seen(np.ones(2)), "entrpy", ASYMMETRIC)  # type: ignore[arg-type]


def test_a_table_reads_back_what_it_wrote(tmp_path: Path) -> None:
    chance = np.random.default_rng(2)
    table = CalibrationTable()
    table["a"].see(chance.normal(size=(50, 8)).astype(np.float32), channels=True)
    table["b"].see(chance.uniform(size=30).astype(np.float32))
    table.save(tmp_path / "table.json")
    read = CalibrationTable.load(tmp_path / "table.json")
    assert list(read) == ["a", "b"]
    for name in read:
        for observer in OBSERVERS:
            before, after = (choose_range(t[name], observer, ASYMMETRIC) for t in (table, read))
            assert before == pytest.approx(after)
    assert read["a"].channels == pytest.approx(table["a"].channels, rel=1e-4)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    for content in ("{", "[]", '{"format": "other"}'):
        (tmp_path / "t.json").write_text(content)
        with pytest.raises(FuselineError, match="is no calibration table"):
            CalibrationTable.load(tmp_path / "t.json")


def test_a_table_of_the_largest_numbers_reads_back(tmp_path: Path) -> None:
    table = CalibrationTable()
    table["a"].see(np.array([-3.4e38, 1.0, 3.4e38], np.float32))
    table["never finite"].see(np.array([np.nan], np.float32))
    table.save(tmp_path / "t.json")
    read = CalibrationTable.load(tmp_path / "t.json")
    assert (read["a"].least, read["a"].most) == (table["a"].least, table["a"].most)
    assert (read["never finite"].batches, read["never finite"].not_finite) == (0, 1)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"max": None}, "'max' is None, no number"),
        ({"max": "big"}, "'max' is 'big', no number"),
        ({"max": float("nan")}, "no finite number"),
        ({"max": 1e300}, "no finite number"),
        ({"min": 5.0, "max": -5.0}, "begins at 5 and ends at -5"),
        ({"batches": -1}, "'batches' is -1, no number of times"),
        ({"channels": 3}, "no list of numbers"),
        ({"scale": 0.1}, "has 'scale', which nothing is known of"),
        ({"histogram": None}, "'histogram' is None, no mapping"),
        ({"histogram": {"low": 0.0, "width": 1.0}}, "'histogram' has no 'counts'"),
        ({"histogram": {"low": 0.0, "width": 1.0, "counts": []}}, "has no counts"),
        ({"histogram": {"low": 0.0, "width": 1.0, "counts": [3]}}, "no pair"),
        ({"histogram": {"low": 0.0, "width": 1.0, "counts": [[-1, 2]]}}, "no number of times"),
        ({"histogram": {"low": 0.0, "width": 1.0, "counts": [[9999, 2]]}}, "the place 9999"),
        ({"histogram": {"low": 0.0, "width": -1.0, "counts": [[0, 2]]}}, "no width"),
    ],
    ids=str,
)
def test_a_line_that_was_edited_wrongly_is_named(tmp_path: Path, edit: dict[str, Any], message: str) -> None:
    table = CalibrationTable()
    table["a"].see(np.arange(9, dtype=np.float32))
    row = table["a"].to_json() | edit
    (tmp_path / "t.json").write_text(json.dumps({"format": "fuseline calibration 1", "values": {"a": row}}))
    with pytest.raises(FuselineError, match=f"for 'a': .*{message}"):
        CalibrationTable.load(tmp_path / "t.json")


def test_an_input_with_a_default_need_not_be_fed() -> None:
    model = Model.from_text(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, float[2] w) => (float[2] y)'
        " <float[2] w = {3.0, -4.0}> { y = Mul(x, w) }"
    )
    table = calibrate(model, [{"x": np.ones(2, np.float32)}], ["w", "y"])
    assert (table["w"].least, table["w"].most) == (-4.0, 3.0)
    assert (table["y"].least, table["y"].most) == (-4.0, 3.0)


def test_calibrate_looks_at_inputs_and_inner_values() -> None:
    model = Model.from_text(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { a = Neg(x) y = Exp(a) }'
    )
    batches = [{"x": np.array([1.0, 2.0], np.float32)}, {"x": np.array([-3.0], np.float32)}]
    done: list[int] = []
    table = calibrate(model, batches, ["x", "a"], progress=done.append)
    assert (table["x"].least, table["x"].most) == (-3.0, 2.0)
    assert (table["a"].least, table["a"].most) == (-2.0, 3.0)
    assert done == [1, 2]
    with pytest.raises(FuselineError, match="no value 'nothing'"):
        calibrate(model, batches, ["nothing"])
    with pytest.raises(FuselineError, match="no calibration data"):
        calibrate(model, [], ["a"])
