"""The behaviour report: what flips is found, and criteria fail what they should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.tools.quantizer import quantize
from fuseline.tools.quantizer.behaviour import behaviour
from fuseline.tools.quantizer.criteria import Criteria, failures, load_criteria
from fuseline.tools.quantizer.data import Batch, Batches
from fuseline.tools.quantizer.judge import judge, load_slices
from fuseline.tools.quantizer.report import as_html, write_report
from tests.tools.quantizer import small_model


def made(logits: list[list[float]], labels: list[int]) -> Batches:
    return Batches([Batch({"x": np.array(logits, np.float32)}, np.array(labels))], "a test")


def test_flips_classes_slices_and_thresholds() -> None:
    before = [[4.0, 0.0], [0.0, 4.0], [0.1, 0.0], [0.0, 3.0]]
    after = [[4.0, 0.0], [0.0, 4.0], [0.0, 0.1], [2.0, 0.0]]
    data = made(before, [0, 1, 0, 1])
    report = behaviour(
        lambda i: {"logits": np.array(before)},
        lambda i: {"logits": np.array(after)},
        data,
        {"first half": np.array([1, 1, 0, 0]), "second half": np.array([0, 0, 1, 1])},
    )
    assert report["agreement"] == 0.5
    assert report["accuracy"]["points"] == -50.0
    assert [r["points"] for r in report["slices"]] == [0.0, -100.0]
    assert [r["points"] for r in report["classes"]] == [-50.0, -50.0]
    # The most decided flip comes first.
    assert [e["example"] for e in report["flips"]["examples"]] == [3, 2]
    assert report["flips"]["examples"][0]["label"] == 1
    assert [e["content"] for e in report["flips"]["examples"]] == ["0 3", "0.1 0"]
    assert report["thresholds"][0]["changed"] == 0.5
    assert failures(
        Criteria(agreement=0.9, slice_drop=1.0, size_ratio=0.3), {**report, "size_ratio": 0.2}
    ) == [
        "slice-drop is 100, and 1 was asked for",
        "agreement is 0.5, and 0.9 was asked for",
    ]
    assert failures(Criteria(agreement=0.5), report) == []


@pytest.mark.parametrize("lengths", [(2, 2), (2, 3)], ids=["one length", "two lengths"])
def test_what_flipped_can_be_read(lengths: tuple[int, int]) -> None:
    """Texts stand for their examples, also where each position is an example of its own."""
    texts = [np.array(["one", "two"]), np.array(["three", "four"])]
    data = Batches(
        [Batch({"n": np.full(2, n)}, None, t) for n, t in zip(lengths, texts, strict=True)], "a test"
    )

    def predict(inputs: Any, *, flipped: bool) -> dict[str, np.ndarray]:
        logits = np.zeros((2, int(inputs["n"][0]), 2))
        # The last batch's second text, in its last position alone.
        logits[1, -1, int(flipped and inputs is data.items[1].inputs)] = 1.0
        return {"logits": logits}

    report = behaviour(lambda i: predict(i, flipped=False), lambda i: predict(i, flipped=True), data)
    assert [e["content"] for e in report["flips"]["examples"]] == ["four"]


def test_what_the_report_cannot_tell_fails() -> None:
    found = failures(Criteria(accuracy_drop=1.0), {"agreement": 1.0})
    assert found == ["accuracy-drop: the report does not tell, for want of labels, slices or classes"]


def test_a_slice_of_another_length_is_refused() -> None:
    data = made([[1.0, 0.0]], [0])
    predict = lambda i: {"logits": np.array([[1.0, 0.0]])}  # noqa: E731
    with pytest.raises(FuselineError, match="slice 'odd' is of 2 examples, and there are 1"):
        behaviour(predict, predict, data, {"odd": np.array([1, 0])})


@pytest.mark.parametrize("members", [np.ones(4), np.ones((4, 1), bool)], ids=["numbers", "axes"])
def test_slices_are_booleans(tmp_path: Path, members: np.ndarray) -> None:
    np.savez(tmp_path / "s.npz", odd=members)
    with pytest.raises(FuselineError, match=r"slice 'odd' is .*, and has to be one boolean per example"):
        load_slices(tmp_path / "s.npz")


def test_outputs_of_unequal_lengths_are_compared_position_by_position() -> None:
    data = Batches([Batch({"n": np.array(n)}, np.zeros((2, n), np.int64)) for n in (3, 5)], "a test")
    predict = lambda i: {"logits": np.eye(4)[np.zeros((2, int(i["n"])), int)]}  # noqa: E731
    report = behaviour(predict, predict, data)
    assert report["examples"] == 16
    assert report["accuracy"]["float"] == 1.0


def test_a_criterion_with_a_wrong_key(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("agreemnt: 0.9")
    with pytest.raises(FuselineError, match="did you mean 'agreement'"):
        load_criteria(tmp_path / "c.yaml")


def test_the_report_of_two_files(tmp_path: Path) -> None:
    small_model.model(fragile=False).save(tmp_path / "m.onnx")
    quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", {"weights": {"smallest": 0}})
    plain = Model.load(tmp_path / "m.onnx")
    data = Batches([Batch(b, np.zeros(16, np.int64)) for b in small_model.batches()], "a test")
    report = judge(tmp_path / "m.onnx", tmp_path / "q.onnx", data, left={"head": "excluded"})
    assert report["examples"] == 128
    assert report["agreement"] > 0.95
    assert report["size_ratio"] < 0.6
    assert {row["value"] for row in report["layers"]} & {v.name for n in plain.graph for v in n.outputs}
    write_report(tmp_path / "r.json", report)
    assert json.loads((tmp_path / "r.json").read_text())["agreement"] == report["agreement"]
    page = as_html(report)
    assert "Flipped predictions" in page
    assert "head" in page
