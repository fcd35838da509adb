"""What a pass author uses: new, test, list; and what continuous integration reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from shell import GELU, fuseline, shown

from fuseline.engine.errors import FuselineError, GateFailed
from fuseline.engine.model import Model
from fuseline.engine.plurals import counted
from fuseline.tools.junit import Check, write_junit


@pytest.fixture
def model(tmp_path: Path) -> Path:
    Model.from_text(GELU).save(tmp_path / "gelu.onnx")
    return tmp_path / "gelu.onnx"


def test_a_new_pass_works_and_is_held_to_its_golden_file(tmp_path: Path) -> None:
    assert (
        "fuseline passes test my/fuse_mine.py"
        in fuseline("passes", "new", "fuse-mine", "-o", "my", cwd=tmp_path).stdout
    )
    done = fuseline("passes", "test", "my/fuse_mine.py", cwd=tmp_path)
    assert "4 cases, 0 failed" in done.stdout
    script, golden = tmp_path / "my" / "fuse_mine.py", tmp_path / "my" / "fuse_mine.onnxtxt"
    # A pass that computes something else is found out, and no update hides it.
    script.write_text(script.read_text().replace("op.Clip(x, low, high)", "op.Clip(x, low, low)"))
    words = ("passes", "test", "my/fuse_mine.py", "--junit", "j.xml")
    told = fuseline(*words, cwd=tmp_path, code=1).stdout
    assert "FAILED  fuse_mine.onnxtxt positive" in told
    assert "4 cases, 2 failed" in told
    suite = ET.parse(tmp_path / "j.xml").getroot()[0]
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("4", "2")
    before = golden.read_text()
    fuseline(*words, "--update", cwd=tmp_path, code=1)
    assert golden.read_text() == before


def test_update_writes_what_was_made(tmp_path: Path) -> None:
    golden = tmp_path / "relu.onnxtxt"
    golden.write_text(
        "// RUN: eliminate-identity\n// CASE: one\n"
        "g (float[N] x) => (float[N] y) { a = Identity(x) y = Relu(a) }\n// EXPECT:\n"
    )
    assert "updated relu.onnxtxt one" in shown("passes", "test", golden, "--update")
    assert "y = Relu (x)" in golden.read_text()
    assert json.loads(shown("passes", "test", golden, "--json")) == [
        {"file": str(golden), "case": "one", "failure": None, "updated": False}
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("// CASE: a\ng () => () {}\n", "has no '// RUN:'"),
        ("// RUN: eliminate-identity\n", "has no '// CASE:'"),
        ("nonsense\n", "line 1: text before the first '// CASE:'"),
        ("// RUN: eliminate-identity\n// CASE: a\n// WRONG: b\n", "line 3: '// WRONG: b' is not a directive"),
    ],
)
def test_broken_golden_files(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.onnxtxt").write_text(text)
    with pytest.raises(FuselineError) as error:
        shown("passes", "test", tmp_path / "a.onnxtxt")
    assert told in str(error.value)


def test_names_that_no_pass_may_have(tmp_path: Path) -> None:
    with pytest.raises(FuselineError, match="'fuse-gelu' is taken"):
        shown("passes", "new", "fuse-gelu", "-o", tmp_path)
    with pytest.raises(FuselineError, match="no name for a pass"):
        shown("passes", "new", "Fuse Gelu", "-o", tmp_path)
    shown("passes", "new", "fuse-mine", "-o", tmp_path)
    with pytest.raises(FuselineError, match="is there already"):
        shown("passes", "new", "fuse-mine", "-o", tmp_path)


def test_the_list_is_filtered() -> None:
    names = [p["name"] for p in json.loads(shown("passes", "list", "gelu", "--json"))["passes"]]
    assert "fuse-gelu" in names
    assert "fold-constants" not in names
    found = json.loads(shown("passes", "list", "--phase", "pre-gradient", "--folder", "training", "--json"))
    assert found["pipelines"] == {}
    assert {p["phase"] for p in found["passes"]} == {"pre-gradient"}
    assert all(".training." in p["provider"] for p in found["passes"])
    with pytest.raises(FuselineError, match="no folder 'fusions'"):
        shown("passes", "list", "--folder", "fusions")


def test_timing_shows_what_changed_first(model: Path) -> None:
    told = shown("run", model, "-o", model.with_name("out.onnx"), "--timing")
    rows = [line for line in told.splitlines() if line.startswith("│")]
    changes = [row.split("│")[3].strip() for row in rows[:-1]]
    idle = [c == "0" for c in changes]
    assert idle == sorted(idle)
    assert not all(idle)


def test_junit_of_a_run(model: Path) -> None:
    (model.parent / "expect.yaml").write_text("Relu: 1\nLayerNormalization: 3\n")
    words = ("run", model, "-o", model.with_name("o.onnx"), "--verify", "outputs")
    with pytest.raises(GateFailed):
        shown(*words, "--expect", model.parent / "expect.yaml", "--junit", model.parent / "j.xml")
    cases = {c.attrib["name"]: c for c in ET.parse(model.parent / "j.xml").iter("testcase")}
    assert cases["Relu: 1"].find("failure") is None
    failure = cases["LayerNormalization: 3"].find("failure")
    assert failure is not None
    assert failure.attrib["message"].strip() == "LayerNormalization: expected 3, found 0"
    gelu = next(c for name, c in cases.items() if name.endswith("fuse-gelu"))
    assert gelu.attrib["classname"] == "outputs after each pass"
    assert not list(gelu)


def test_junit_holds_any_text(tmp_path: Path) -> None:
    write_junit(tmp_path / "j.xml", "a <b>", [Check("g", "n\x00\x1b[1m", 0.5, "line <1>\nline & 2")])
    case = next(ET.parse(tmp_path / "j.xml").iter("testcase"))
    assert case.attrib["name"] == "n��[1m"
    assert case[0].text == "line <1>\nline & 2"


def test_version_completion_and_help() -> None:
    import fuseline as package

    assert shown("--version") == f"fuseline {package.__version__}\n"
    for command in (["run"], ["passes", "test"], ["bench"], ["plan"], ["train"], ["export"], ["bisect"]):
        assert "list[" not in shown(*command, "--help")
    environment = {**os.environ, "_FUSELINE_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    environment["COMP_WORDS"] = "fuseline passes show fuse-ge"
    command = [sys.executable, "-c", "from fuseline.tools.main import app; app(prog_name='fuseline')"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "fuse-gelu" in done.stdout.split()


def test_nouns() -> None:
    assert [counted(n, "pass") for n in (0, 1, 2000)] == ["0 passes", "1 pass", "2,000 passes"]
    assert counted(2, "near miss") == "2 near misses"
    assert counted(2, "match") == "2 matches"
    assert counted(2, "node") == "2 nodes"
