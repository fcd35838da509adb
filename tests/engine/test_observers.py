"""Timing, dumps and expectations."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from fuseline.engine.errors import FuselineError, GateFailed, PipelineError
from fuseline.engine.manager import PassRecord, Step
from fuseline.engine.model import Model
from fuseline.engine.observer import Observer
from fuseline.engine.observers import DumpDiffs, Expect, Timing, load_expectations
from fuseline.engine.pass_ import Pass
from fuseline.engine.patterns import Fusion
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.rewriting.rewriter import Rewriter

TEXT = """<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
agraph (float[N,4] x) => (float[N,4] y) {
    a = Identity(x) b = Identity(a) c = Relu(b) y = Exp(c)
}"""


class DropIdentities(Pass):
    """Identity(x) → x"""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in list(model.graph):
            if node.op_type == "Identity" and rewriter.permit(node):
                assert node.inputs[0] is not None
                rewriter.redirect(node.outputs[0], node.inputs[0])
                rewriter.remove(node)
                rewriter.count("identities")
            elif node.op_type != "Identity":
                rewriter.reject(node, "not an Identity")
        return rewriter.changes


class Nothing(Pass):
    """x → x"""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        return 0


DropIdentities.name, Nothing.name = "drop-identities", "nothing"


class Refuse(Observer):
    """A gate that refuses one pass."""

    def __init__(self, name: str) -> None:
        self.name = name

    def after(self, record: PassRecord, model: Model) -> None:
        if record.name == self.name:
            raise GateFailed("no")


def model() -> Model:
    return Model.from_text(TEXT)


def names(folder: Path) -> set[str]:
    return {f.name for f in folder.iterdir()}


def test_a_dump_has_files_for_changing_passes_only(tmp_path: Path) -> None:
    Pipeline.of(Nothing(), DropIdentities(), DropIdentities()).run(model(), [DumpDiffs(tmp_path)])
    assert names(tmp_path) == {
        "002-drop-identities.diff",
        "002-drop-identities.json",
        "report.html",
        "summary.json",
    }
    text = (tmp_path / "002-drop-identities.diff").read_text()
    assert text.startswith("pass 2: drop-identities\n2 removed, 1 rewired\n")
    assert "- a = Identity(x)" in text
    data = json.loads((tmp_path / "002-drop-identities.json").read_text())
    assert data["pass"]["name"] == "drop-identities"
    assert [r["removed"] for r in data["rewrites"]] == [["Identity_0"], ["Identity_1"]]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [p["changes"] for p in summary["passes"]] == [0, 2, 0]
    assert summary["passes"][1]["statistics"] == {"identities": 2}
    assert summary["passes"][1]["rejections"][0]["reason"] == "not an Identity"
    assert (summary["passes"][1]["nodes_before"], summary["passes"][1]["nodes_after"]) == (4, 2)


def test_an_earlier_dump_is_replaced(tmp_path: Path) -> None:
    Pipeline.of(DropIdentities()).run(model(), [DumpDiffs(tmp_path)])
    Pipeline.of(Nothing()).run(model(), [DumpDiffs(tmp_path)])
    (tmp_path / ".report.html.partial").touch()  # what a killed process leaves
    Pipeline.of(Nothing()).run(model(), [DumpDiffs(tmp_path)])
    assert names(tmp_path) == {"report.html", "summary.json"}


@pytest.mark.parametrize("with_dump", [False, True])
def test_a_folder_with_foreign_files_is_never_cleared(tmp_path: Path, with_dump: bool) -> None:
    if with_dump:
        Pipeline.of(DropIdentities()).run(model(), [DumpDiffs(tmp_path)])
    (tmp_path / "003-thesis.diff").write_text("years of work")
    before = names(tmp_path)
    with pytest.raises(FuselineError) as caught:
        Pipeline.of(Nothing()).run(model(), [DumpDiffs(tmp_path)])
    assert "holds files that are not from a dump: 003-thesis.diff" in str(caught.value)
    assert names(tmp_path) == before


def test_a_summary_of_somebody_else_is_foreign_too(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"mine": true}')
    with pytest.raises(FuselineError, match=r"not from a dump: summary\.json"):
        Pipeline.of(Nothing()).run(model(), [DumpDiffs(tmp_path)])


@pytest.mark.parametrize("dump_first", [False, True])
def test_a_refused_pass_is_dumped_and_later_diffs_start_from_the_restored_model(
    tmp_path: Path, dump_first: bool
) -> None:
    observers: list[Observer] = [Refuse("drop-identities"), DumpDiffs(tmp_path)]
    if dump_first:
        observers.reverse()
    Pipeline.of(DropIdentities(), Nothing()).run(model(), observers, revert_failing=True)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [p["reverted"] for p in summary["passes"]] == [True, False]
    assert summary["passes"][0]["error"] == "no"
    assert "001-drop-identities.diff" in summary["passes"][0]["files"]


class Interrupt(Observer):
    """Somebody who presses Ctrl-C before a pass, or before them all."""

    def __init__(self, index: int) -> None:
        self.index = index

    def started(self, model: Model) -> None:
        if self.index == 0:
            raise KeyboardInterrupt

    def before(self, step: Step, model: Model) -> None:
        if self.index == step.index:
            raise KeyboardInterrupt


@pytest.mark.parametrize("index", [0, 1, 2])
def test_an_interrupted_run_has_a_report(tmp_path: Path, index: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        Pipeline.of(DropIdentities(), Nothing()).run(model(), [DumpDiffs(tmp_path), Interrupt(index)])
    assert (tmp_path / "report.html").is_file()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [p["name"] for p in summary["passes"]] == ["drop-identities"][: max(0, index - 1)]


def test_timing_shows_every_pass() -> None:
    timing = Timing()
    Pipeline.of(Nothing(), DropIdentities()).run(model(), [timing])
    stream = io.StringIO()
    Console(file=stream, width=120).print(timing.table())
    shown = stream.getvalue()
    assert "drop-identities" in shown
    assert "identities 2" in shown
    assert timing.seconds > 0


class FuseReluExp(Fusion):
    """Tanh(Exp(Relu(x))) → own.ReluTanh(x)"""

    produces = ("ReluTanh",)

    def match(self, op, x):  # type: ignore[no-untyped-def]
        return op.Tanh(op.Exp(op.Relu(x)))

    def replace(self, op, x):  # type: ignore[no-untyped-def]
        return op.ReluTanh(x, _domain="own")


FuseReluExp.name = "fuse-relu-tanh"


def test_expectations_that_hold() -> None:
    Pipeline.of(DropIdentities()).run(model(), [Expect({"Relu": 1, "Identity": 0})])


def test_a_missed_expectation_names_the_nearest_misses() -> None:
    near = Model.from_text(TEXT.replace("c = Relu(b) y = Exp(c)", "c = Sqrt(b) d = Exp(c) y = Tanh(d)"))
    with pytest.raises(GateFailed) as caught:
        Pipeline.of(FuseReluExp()).run(near, [Expect({"own.ReluTanh": 1, "Relu": 3})])
    message = str(caught.value)
    assert "own.ReluTanh: expected 1, found 0" in message
    assert "fuse-relu-tanh: " in message
    assert "2 of 3 nodes fit" in message
    assert "found the output of Sqrt" in message
    assert "Relu: expected 3, found 0\n    no fusion of the pipeline makes Relu" in message


def test_expectations_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "expect.yaml"
    path.write_text("expect: {LayerNormalization: 25}")
    assert load_expectations(path) == {"LayerNormalization": 25}
    path.write_text("LayerNormalization: many")
    with pytest.raises(PipelineError, match="must map operators to counts"):
        load_expectations(path)
