"""The replay: an unchanged engine gives the recorded graphs, a changed graph is shown."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

from fuseline.tools.campaigns import replay, replay_cases
from fuseline.tools.campaigns.replay_justified import Justification, justified_by, load

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
    assert (
        f"1 of {len(replay_cases.PIPELINES['node'])} graphs are as recorded, 0 differ as is meant, 1" in shown
    )


def test_what_is_meant_is_no_failure(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = replay_cases.cases(folder, EVERYTHING)[0]
    case.write(folder, case.read(folder).replace("Neg", "Exp"))
    meant = Justification(
        "signs", "minus is enough", re.compile("node/"), (re.compile(r"^[-+] (Exp|Neg)\("), re.compile("Abs"))
    )
    monkeypatch.setattr(replay, "load_classes", lambda: [meant])
    monkeypatch.setattr(sys, "argv", ["replay", "compare", str(folder), "--processes", "1"])
    assert replay.main() == 0
    assert "meant in 1 graphs: signs: minus is enough" in capsys.readouterr().out


def test_a_class_covers_its_own_cases_and_lines_only() -> None:
    meant = Justification("fewer", "", re.compile("^node/"), (re.compile("^[-<] Neg"), re.compile("^> Abs")))
    assert justified_by("node/a", ["- Neg(x)", "< Neg(y)"], [meant]) == ({"fewer"}, [])
    assert justified_by("zoo/a", ["- Neg(x)"], [meant]) == (set(), ["- Neg(x)"])
    assert justified_by("node/a", ["- Neg(x)", "+ Neg(y)"], [meant])[1] == ["+ Neg(y)"]
    [grown] = justified_by("node/a", ["- Neg(x)", "> Abs(y)", "> Abs(y)"], [meant])[1]
    assert "1 lines more" in grown


def test_readers_of_another_operator_have_not_changed() -> None:
    meant = Justification(
        "in place",
        "",
        re.compile(""),
        (re.compile(r"^- Sum\("), re.compile(r"^\+ Add\(")),
        operands={"Sum": "Add"},
    )
    lines = ["- Sum(x, y)", "- Relu(‹Sum›)", "+ Add(x, y)", "+ Relu(‹Add›)"]
    assert justified_by("a", lines, [meant]) == ({"in place"}, [])
    # A reader that is gone, is new, or reads something else is one that has changed.
    assert justified_by("a", lines[:3], [meant])[1] == ["- Relu(‹Sum›)"]
    assert justified_by("a", [*lines, "+ Relu(‹Add›)"], [meant])[1][:1] == ["+ Relu(‹Add›)"]
    assert justified_by("a", [*lines[:3], "+ Relu(‹Mul›)"], [meant])[1] == ["- Relu(‹Sum›)", "+ Relu(‹Mul›)"]


def test_no_class_accepts_any_line() -> None:
    assert not [c.name for c in load() if c.covers("- Anything(‹Else›)") or c.covers("+ Anything(‹Else›)")]


def test_every_class_of_the_list_has_a_reason() -> None:
    classes = load()
    assert len({c.name for c in classes}) == len(classes)
    assert all(len(c.reason) > 20 and c.lines for c in classes)
