"""The replay: an unchanged engine gives the recorded graphs, a changed graph is shown."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

from fuseline.tools.campaigns import replay, replay_cases

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
g (float[N] x) => (float[N] y) { a = Identity(x) b = Neg(a) y = Abs(b) }"""
EVERYTHING = re.compile("")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A record of one model."""
    path = tmp_path / "models" / "node" / "small.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(onnx.parser.parse_model(MODEL), path)
    replay_cases.transform_all(replay_cases.cases(tmp_path, EVERYTHING), tmp_path, 1)
    return tmp_path


def test_compare(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["replay", "compare", str(folder), "--explain", "--processes", "1"]
    monkeypatch.setattr(sys, "argv", command)
    assert replay.main() == 0
    case = replay_cases.cases(folder, EVERYTHING)[0]
    assert "Identity" not in case.read(folder)
    case.write(folder, case.read(folder).replace("Neg", "Exp"))
    assert replay.main() == 1
    shown = capsys.readouterr().out
    assert "differs: node/small | inference-O3" in shown
    assert "- Exp(x)" in shown
    assert "+ Neg(x)" in shown
    assert f"1 of {len(replay_cases.PIPELINES['node'])} graphs are as recorded" in shown
