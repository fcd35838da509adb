"""The ladder: it meets the criterion, keeps its best on disk, and goes on where it was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.tools.quantizer import quantize
from fuseline.tools.quantizer.metrics import predictor
from tests.tools.quantizer import small_model

FRAGILE = {"weights": {"smallest": 0}, "accuracy": {"tolerable-loss": 0.01}}


def test_the_tuner_finds_the_fragile_node_by_itself(tmp_path: Path) -> None:
    lines: list[str] = []
    outcome = quantize(
        small_model.model(),
        tmp_path / "q.onnx",
        {"mode": "static", "format": "qdq", **FRAGILE},
        calibration=small_model.batches(),
        tell=lines.append,
    )
    first = outcome.trials[0]
    assert not first.met
    assert outcome.met
    assert outcome.score is not None
    assert outcome.score >= 0.99
    # Of four products one is fragile, and it is the one that stays in float.
    assert len(outcome.left.products) == 1
    worst = json.loads((tmp_path / "q.onnx.tuning/sensitivity-static-qdq.json").read_text())
    assert next(iter(outcome.left.products)) == next(iter(worst))
    on_disk = predictor(Model.load(tmp_path / "q.onnx"))
    batch = small_model.batches()[0]
    np.testing.assert_array_equal(on_disk(batch)["logits"], predictor(outcome.model)(batch)["logits"])


def test_a_rerun_tries_nothing_twice(tmp_path: Path) -> None:
    asked = {"count": 0}

    def metric(predict: object) -> float:
        asked["count"] += 1
        return 1.0 if asked["count"] == 1 else 0.5

    given = {"mode": "static", "weights": {"smallest": 0}, "budget": {"trials": 3}}
    config = {**given, "accuracy": {}}
    run = {"calibration": small_model.batches(), "metric": metric}
    first = quantize(small_model.model(), tmp_path / "q.onnx", config, **run)
    assert (len(first.trials), asked["count"]) == (3, 4)
    assert first.met is False
    second = quantize(small_model.model(), tmp_path / "q.onnx", config, **run)
    assert len(second.trials) == 6
    assert asked["count"] == 7, "neither the float model nor a known trial is judged again"
    asked["count"] = 0
    other = quantize(small_model.model(fragile=False), tmp_path / "q.onnx", config, **run)
    assert len(other.trials) == 3, "the journal of another model is no journal of this one"


def test_killed_half_way_the_best_is_on_disk_and_the_rerun_goes_on(tmp_path: Path) -> None:
    output, journal = tmp_path / "q.onnx", tmp_path / "q.onnx.tuning/journal.jsonl"
    root = Path(__file__).parents[3]
    program = [sys.executable, "-m", "tests.tools.quantizer.small_model", str(output)]
    process = subprocess.Popen(
        program, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, stdout=subprocess.DEVNULL
    )

    def judged() -> bool:
        """The first line is the key, the second the float model's score."""
        return journal.exists() and len(journal.read_text().splitlines()) >= 3

    while process.poll() is None and not judged():
        time.sleep(0.02)
    assert process.poll() is None, "it ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = [json.loads(line) for line in journal.read_text().splitlines()]
    assert predictor(Model.load(output))(small_model.batches()[0])["logits"].shape == (16, 4)
    outcome = small_model.tune(output)
    assert outcome.met
    assert [t.name for t in outcome.trials][: len(before) - 2] == [r["name"] for r in before[2:]]
    assert len(outcome.trials) > len(before) - 2


def test_an_interruption_keeps_the_best(tmp_path: Path) -> None:
    calls = {"count": 0}

    def metric(predict: object) -> float:
        calls["count"] += 1
        if calls["count"] == 3:
            raise KeyboardInterrupt
        return 1.0 if calls["count"] == 1 else 0.4

    outcome = quantize(
        small_model.model(),
        tmp_path / "q.onnx",
        {"mode": "static", "weights": {"smallest": 0}, "accuracy": {}},
        calibration=small_model.batches(),
        metric=metric,
    )
    assert outcome.score == 0.4
    assert Model.load(tmp_path / "q.onnx").graph is not None


def broken(predict: object) -> float:
    raise RuntimeError("no labels today")


def wordy(predict: object) -> str:
    return "good"


@pytest.mark.parametrize(("name", "message"), [("broken", "no labels today"), ("wordy", "'good'")])
def test_a_metric_that_gives_no_number_is_named(tmp_path: Path, name: str, message: str) -> None:
    config = {"accuracy": {"metric": f"{__name__}:{name}"}}
    with pytest.raises(FuselineError, match=f"{name}' gave no number: .*{message}"):
        quantize(small_model.model(), tmp_path / "q.onnx", config, calibration=small_model.batches())


def test_a_float_model_without_a_score_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FuselineError, match="the metric gives nan for the float model"):
        quantize(small_model.model(), tmp_path / "q.onnx", metric=lambda predict: float("nan"))
    assert not (tmp_path / "q.onnx").exists()


def test_a_model_without_a_score_is_the_worst(tmp_path: Path) -> None:
    scores = iter([1.0, float("nan"), 0.5, *[0.1] * 50])
    config = {"mode": "auto", "weights": {"smallest": 0}, "accuracy": {}}
    outcome = quantize(
        small_model.model(),
        tmp_path / "q.onnx",
        config,
        calibration=small_model.batches(),
        metric=lambda predict: next(scores),
    )
    assert outcome.score == 0.5


@pytest.mark.parametrize("seconds", [0.0])
def test_a_budget_never_ends_with_nothing(tmp_path: Path, seconds: float) -> None:
    config = {"mode": "auto", "weights": {"smallest": 0}, "budget": {"time": seconds}, "accuracy": {}}
    outcome = quantize(small_model.model(), tmp_path / "q.onnx", config, calibration=small_model.batches())
    assert (tmp_path / "q.onnx").exists()
    assert len(outcome.trials) == 1


def test_the_last_rung_trains_when_nodes_had_to_stay_in_float(tmp_path: Path) -> None:
    trained = {"count": 0}

    class Trained:
        """Stands for a trainer on grids: it gives a model that keeps everything in integers."""

        def train(self) -> None:
            trained["count"] += 1

        def save_onnx(self, path: Path) -> Path:
            quantize(small_model.model(fragile=False), path, {"mode": "dynamic", "weights": {"smallest": 0}})
            return path

    config = {"mode": "static", "format": "qdq", "weights": {"smallest": 0}, "accuracy": {}}
    scores = iter([1.0, 0.5, 0.995, 0.997])  # float, static, one node in float, trained
    run = {"calibration": small_model.batches(), "metric": lambda predict: next(scores), "trainer": Trained()}
    outcome = quantize(small_model.model(), tmp_path / "q.onnx", config, **run)
    assert [t.name for t in outcome.trials] == ["static, qdq", "static, 1 node in float", "training-aware"]
    assert (outcome.score, outcome.left.products) == (0.997, {}), "fewer in float is better"
    (tmp_path / "q.onnx").unlink()
    again = quantize(small_model.model(), tmp_path / "q.onnx", config, **run)
    assert (trained["count"], again.score) == (1, 0.997), "the trained model is kept, not trained again"
    assert "DynamicQuantizeMatMul" in {n.op_type for n in Model.load(tmp_path / "q.onnx").graph}


def test_the_last_rung_is_not_tried_when_an_earlier_one_will_do(tmp_path: Path) -> None:
    outcome = quantize(
        small_model.model(fragile=False),
        tmp_path / "q.onnx",
        {"mode": "dynamic", "weights": {"smallest": 0}, "accuracy": {}},
        calibration=small_model.batches(),
        metric=lambda predict: 1.0,
        trainer=None,
    )
    assert [t.name for t in outcome.trials] == ["dynamic, fused"]
