"""The command line as a user meets it: real processes, real files, exit codes and messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from shell import GELU, fuseline, refused, shown

from fuseline.engine.model import Model

# The twelve-line pass that the README shows.
PLUGIN = '''from fuseline import Fusion


class FuseReluRelu(Fusion):
    """Relu(Mul(x, ½)) → Mul(Relu(x), ½)"""

    name = "relu-before-half"

    def match(self, op, x):
        return op.Relu(op.Mul(x, 0.5))

    def replace(self, op, x):
        return op.Mul(op.Relu(x), 0.5)
'''

WRONG = PLUGIN.replace("op.Mul(op.Relu(x), 0.5)", "op.Mul(op.Relu(x), 0.505)").replace("relu-before", "wrong")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    Model.from_text(GELU).save(path)
    return path


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "my_passes.py"
    path.write_text(PLUGIN)
    return path


def test_run_dump_verify_and_diff(model: Path, tmp_path: Path) -> None:
    out, dumps = tmp_path / "out.onnx", tmp_path / "dumps"
    done = fuseline(
        "run", model, "-o", out, "--pipeline", "inference", "--dump", dumps, "--verify", "outputs", "--timing"
    )
    assert "outputs verified" in done.stdout
    assert [n.op_type for n in Model.load(out).graph] != [n.op_type for n in Model.load(model).graph]
    summary = json.loads((dumps / "summary.json").read_text())
    changed = [p for p in summary["passes"] if p["changes"]]
    assert changed
    assert len(list(dumps.glob("*.diff"))) == len(changed) == len(list(dumps.glob("*.json"))) - 1
    fuseline("diff", model, model)
    different = fuseline("diff", model, out, code=1)
    assert "Identity" in different.stdout
    assert json.loads(fuseline("diff", model, out, "--json", code=1).stdout)


def test_a_users_own_pass(model: Path, plugin: Path, tmp_path: Path) -> None:
    out, dumps = tmp_path / "out.onnx", tmp_path / "dumps"
    fuseline(
        "run", model, "-o", out, "--plugin", plugin, "--verify", "outputs", "--dump", dumps,
        "--pipeline", "eliminate-identity,relu-before-half",
    )  # fmt: skip
    diff = next(dumps.glob("*relu-before-half.diff")).read_text()
    assert "Relu" in diff
    assert "relu-before-half" in diff
    assert "relu-before-half" in fuseline("passes", "list", "--plugin", plugin).stdout


def test_a_wrong_pass_is_caught_located_and_skipped(model: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    out = tmp_path / "out.onnx"
    pipeline = "eliminate-identity,wrong-half,remove-unused"
    common = ("--pipeline", pipeline, "--plugin", wrong, "--verify", "outputs")
    caught = fuseline("run", model, "-o", out, *common, code=1)
    assert "wrong-half" in caught.stderr
    assert not out.exists()
    found = fuseline("bisect", model, *common, "-o", tmp_path / "reproducer", code=1)
    assert "wrong-half" in found.stdout
    assert (tmp_path / "reproducer").is_dir()
    skipped = fuseline("run", model, "-o", out, *common, "--revert-failing")
    assert "reverted" in skipped.stdout
    assert "Identity" not in [n.op_type for n in Model.load(out).graph]


def test_bad_input_is_one_clear_message(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    text = tmp_path / "text.onnx"
    text.write_text("hello")
    truncated = tmp_path / "truncated.onnx"
    truncated.write_bytes(model.read_bytes()[:-20])
    unknown = onnx.load(model)
    unknown.graph.node[0].op_type = "Dvi"
    onnx.save(unknown, tmp_path / "unknown.onnx")
    before = sorted(tmp_path.iterdir())
    cases: list[tuple[list[object], str]] = [
        ([text], "is not an ONNX model"),
        ([truncated], "cut short"),
        ([tmp_path / "unknown.onnx"], "unknown operator 'Dvi'"),
        ([tmp_path / "none.onnx"], "there is no file"),
        ([model, "--pipeline", "eliminate-identty"], "did you mean 'eliminate-identity'"),
        ([model, "--pipeline", "eliminate-identity{"], "malformed pipeline"),
        ([model, "--pipeline", "none.yaml"], "cannot be read"),
        ([model, "--plugin", "none.py"], "no plugin file"),
        ([model, "--verify", "nothing"], "is not one of"),
        ([model, "--disable", "nothing"], "the pipeline has no pass 'nothing'"),
    ]
    for words, message in cases:
        done = fuseline("run", *words, "-o", out, code=2)
        assert message in done.stderr
        assert not done.stdout
    assert sorted(tmp_path.iterdir()) == before


def test_foreign_files_in_the_dump_folder_are_never_cleared(model: Path, tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    (dumps / "thesis.tex").write_text("years of work")
    fuseline("run", model, "-o", tmp_path / "out.onnx", "--dump", dumps, code=2)
    assert (dumps / "thesis.tex").read_text() == "years of work"
    assert not (tmp_path / "out.onnx").exists()


def test_expectations(model: Path, tmp_path: Path) -> None:
    expect = tmp_path / "expect.yaml"
    expect.write_text("Relu: 7\n")
    done = fuseline(
        "run", model, "-o", tmp_path / "o.onnx", "--pipeline", "remove-unused", "--expect", expect, code=1
    )
    assert "Relu" in done.stderr
    assert "7" in done.stderr


def test_catalogue_and_doctor() -> None:
    listed = json.loads(fuseline("passes", "list", "--json").stdout)
    names = {p["name"] for p in listed["passes"]}
    assert {"fold-constants", "remove-unused", "eliminate-identity"} <= names
    assert {"inference", "training"} <= set(listed["pipelines"])
    assert "before" in fuseline("passes", "list").stdout
    shown = fuseline("passes", "show", "fold-constants").stdout
    assert "option" in shown
    assert "did you mean 'fold-constants'" in fuseline("passes", "show", "fold-constant", code=2).stderr
    findings = json.loads(fuseline("doctor", "--json").stdout)
    assert all(f["state"] != "wrong" for f in findings)


def test_a_reader_that_goes_away_is_no_error(model: Path) -> None:
    command = f"{sys.executable} -m fuseline.tools.main passes list --json | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr


def test_explain_names_the_altered_node_and_both_values(tmp_path: Path) -> None:
    path = tmp_path / "altered.onnx"
    altered = Model.from_text(GELU.replace("1.4142135", "1.5"))
    altered.save(path)
    node = next(n.name for n in altered.nodes() if n.op_type == "Div")
    shown = fuseline("passes", "explain", "fuse-gelu", path).stdout
    assert "0 matches" in shown
    assert f"5 of 5 nodes fit, then at Div '{node}': found the constant 1.5" in shown
    assert "expected the constant 1.414213" in shown
    told = json.loads(fuseline("passes", "explain", "fuse-gelu", path, "--json").stdout)
    nearest = told["near_misses"][0]
    assert (nearest["node"], nearest["found"]) == (node, "the constant 1.5")
    assert nearest["expected"].startswith("the constant 1.414213")


BRANCHES = """<ir_version: 8, opset_import: ["" : 17]>
g (float[3] x, bool c) => (float[3] y) { y = If (c)
    <then_branch = t () => (float[3] a) { u = Exp(x) a = Tanh(u) },
     else_branch = e () => (float[3] b) { b = Neg(x) }> }"""


def test_a_model_as_text_and_as_json(model: Path, tmp_path: Path) -> None:
    assert "b = Erf(a)" in shown("show", model)
    whole = json.loads(shown("show", model, "--json"))
    assert (whole["schema"], whole["opsets"]) == ("fuseline.model", {"ai.onnx": 17})
    operators = [n["op"] for n in whole["graph"]["nodes"]]
    assert operators == ["Div", "Erf", "Add", "Mul", "Mul", "Identity", "Relu"]
    assert whole["graph"]["inputs"] == {"x": "float[N,4]"}
    assert {t["name"] for t in whole["graph"]["initializers"]} == {"half", "one", "root"}
    near = json.loads(shown("show", model, "--around", "b", "--hops", 0, "--json"))["nodes"]
    assert [n["op"] for n in near] == ["Erf", "Add"], "who makes the value and who reads it"
    beside = json.loads(shown("show", model, "--around", "a", "--hops", 1, "--json"))["nodes"]
    assert [n["op"] for n in beside] == ["Div", "Erf", "Add"], "who reads x, too, is no neighbour"
    assert "did you mean" in refused("show", model, "--around", "f1")
    assert "give one of them" in refused("show", model, "--around", "b", "--module", "m")
    Model.from_text(BRANCHES).save(tmp_path / "if.onnx")
    assert (
        shown("show", tmp_path / "if.onnx", "--around", "u", "--hops", 0)
        == "u = Exp(x)\na = Tanh(u) : float[3]\n"
    )


def test_what_memory_passes_would_do(tmp_path: Path) -> None:
    text = "g (float[batch,4] x) => (float[batch,4] y) { a = Exp(x) b = Neg(x) c = Add(a, b) y = Relu(c) }"
    Model.from_text(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}').save(tmp_path / "m.onnx")
    fuseline("plan", "m.onnx", "--batch", 8, "--dump", "plans", cwd=tmp_path)
    pages = sorted(tmp_path.glob("plans/*/report.html"))
    assert pages
    assert all(page.with_name("summary.json").is_file() for page in pages)
    fuseline("plan", "m.onnx", "--batch", 8, "--dump", "plans", cwd=tmp_path)
    (tmp_path / "plans" / "mine.txt").write_text("keep me")
    (pages[0].parent / "mine.txt").write_text("keep me")
    told = fuseline("plan", "m.onnx", "--batch", 8, "--dump", "plans", cwd=tmp_path, code=2).stderr
    assert "mine.txt" in told


def test_what_quantizing_did(tmp_path: Path) -> None:
    weight = ",".join(str(i % 7 - 3) for i in range(64 * 64))
    text = f"""g (float[N,64] x) => (float[N,64] y) <float[64,64] w = {{{weight}}}>
    {{ h = MatMul(x, w) y = Relu(h) }}"""
    Model.from_text(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}').save(tmp_path / "m.onnx")
    words = ("quantize", "m.onnx", "-o", "q.onnx", "--mode", "dynamic", "--dump", "dumps")
    fuseline(*words, cwd=tmp_path)
    passes = json.loads((tmp_path / "dumps" / "summary.json").read_text())["passes"]
    assert any(p["name"].startswith("quantize") and p["changes"] for p in passes)
    assert (tmp_path / "dumps" / "report.html").read_text().startswith("<!doctype html>")


def test_what_there_is_to_view(model: Path, tmp_path: Path) -> None:
    shown("run", model, "-o", tmp_path / "out.onnx", "--dump", tmp_path / "d")
    shown("view", tmp_path / "d", "--no-browser", "-o", tmp_path / "copy.html")
    assert (tmp_path / "copy.html").read_bytes() == (tmp_path / "d" / "report.html").read_bytes()
    (tmp_path / "d" / "report.html").unlink()
    assert "the run that dumped here did not finish" in refused("view", tmp_path / "d")
    (tmp_path / "empty").mkdir()
    assert "holds no report.html\n" in refused("view", tmp_path / "empty")


def test_brackets_are_text(model: Path, tmp_path: Path) -> None:
    """What a pass or a file says is never read as a style."""
    assert "f(x[rows])" in shown("passes", "list", "eliminate-padding")
    plugin = tmp_path / "crashing.py"
    plugin.write_text(
        "from fuseline import Pass\n\n\nclass Crash(Pass):\n    'x → nothing'\n    name = 'crash'\n\n"
        "    def run(self, model, rewriter):\n        raise ValueError('at [/encoder] of [batch]')\n"
    )
    common = ("-o", tmp_path / "out.onnx", "--plugin", plugin, "--pipeline", "crash")
    done = fuseline("run", model, *common, "--revert-failing", "--dump", tmp_path / "dump")
    assert "ValueError: at [/encoder] of [batch]" in done.stdout
    (row,) = json.loads((tmp_path / "dump" / "summary.json").read_text())["passes"]
    assert (row["nodes_before"], row["nodes_after"]) == (7, 7), "a pass that crashed has changed nothing"
