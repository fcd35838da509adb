"""Structural diffs: what counts as a change, what is recognised, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import typer
from typer.testing import CliRunner

from fuseline.engine.diff import ModelDiff, Snapshot, diff
from fuseline.engine.diff.as_json import to_dict, to_json
from fuseline.engine.diff.text import rich_text, summary, to_text
from fuseline.engine.graph_text import graph_text
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.verification.verifier import Report
from fuseline.tools.commands.diff import diff_command

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'


def model(body: str, signature: str = "(float[N,4] x) => (float[N,4] y)", initializers: str = "") -> Model:
    return Model.from_text(f"{HEADER}agraph {signature} {initializers} {{ {body} }}")


def difference(before: str, after: str, **kwargs: str) -> ModelDiff:
    return diff(model(before, **kwargs), model(after, **kwargs))


def test_equal_models_are_equal() -> None:
    one = model("h = Relu(x) y = Exp(h)")
    assert not diff(one, one.clone())
    assert summary(diff(one, one)) == "equal"
    assert to_dict(diff(one, one))["equal"]


def test_node_order_is_no_change() -> None:
    assert not difference("a = Relu(x) b = Exp(x) y = Add(a, b)", "b = Exp(x) a = Relu(x) y = Add(a, b)")


def test_added_and_removed() -> None:
    found = difference("h = Relu(x) y = Exp(h)", "h = Relu(x) k = Tanh(h) y = Log(k)")
    assert [n.op for n in found.graph.removed] == ["Exp"]
    assert [n.op for n in found.graph.added] == ["Tanh", "Log"]
    assert not found.graph.changed


def test_rewired() -> None:
    found = difference("a = Relu(x) b = Exp(x) y = Add(a, b)", "a = Relu(x) b = Exp(x) y = Add(b, b)")
    (change,) = found.graph.changed
    assert change.rewired
    assert [(c.index, c.before, c.after) for c in change.inputs] == [(0, "a", "b")]
    assert "~ y = Add(a → b, b) : float[N,4]" in to_text(found)


def test_attributes() -> None:
    found = difference("y = Softmax <axis: int = 0> (x)", "y = Softmax <axis: int = 1> (x)")
    assert "{axis=0 → 1}" in to_text(found)
    found = difference("y = Softmax (x)", "y = Softmax <axis: int = 1> (x)")
    assert "{axis=_ → 1}" in to_text(found)


def test_types() -> None:
    before, after = model("h = Relu(x) y = Exp(h)"), model("h = Relu(x) y = Exp(h)")
    hidden = next(iter(after.graph)).outputs[0]
    hidden.type, hidden.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["N", 4])
    assert "~ h = Relu(x) : ? → float[N,4]" in to_text(diff(before, after))
    assert diff(before, after).counts()["types"] == 1


def test_renames_of_a_whole_chain_are_renames() -> None:
    found = difference(
        "a = Relu(x) b = Exp(a) c = Mul(b, a) y = Add(c, x)",
        "p = Relu(x) q = Exp(p) r = Mul(q, p) y = Add(r, x)",
    )
    assert found.counts() == dict.fromkeys(found.counts(), 0) | {"renamed": 3}
    assert "~ c → r = Mul(q, p)" in to_text(found)


def test_a_change_inside_a_renamed_chain_is_the_only_change() -> None:
    before = "a = Relu(x) b = Exp(a) c = Tanh(b) d = Abs(c) e = Neg(d) f = Sqrt(e) y = Add(f, x)"
    after = "p = Relu(x) q = Exp(p) r = Sigmoid(q) s = Abs(r) t = Neg(s) u = Sqrt(t) y = Add(u, x)"
    counts = difference(before, after).counts()
    assert (counts["added"], counts["removed"], counts["rewired"]) == (1, 1, 1)


def test_initializers_by_content() -> None:
    one = model("y = Add(x, w)", initializers="<float[4] w = {1,2,3,4}>")
    renamed = model("y = Add(x, v)", initializers="<float[4] v = {1,2,3,4}>")
    changed = model("y = Add(x, w)", initializers="<float[4] w = {1,2,3,5}>")
    gone = model("y = Add(x, x)")
    assert [c.kind for c in diff(one, renamed).graph.initializers] == ["renamed"]
    assert not diff(one, renamed).graph.changed
    assert [c.kind for c in diff(one, changed).graph.initializers] == ["changed"]
    assert [c.kind for c in diff(one, gone).graph.initializers] == ["removed"]
    assert "initializer w = float[4] {1, 2, 3, 4} → float[4] {1, 2, 3, 5}" in to_text(diff(one, changed))


def test_weights_are_not_read_for_a_snapshot() -> None:
    one = model("y = Add(x, w)", initializers="<float[4] w = {1,2,3,4}>")

    def load() -> ir.Tensor[np.ndarray]:
        raise AssertionError("the weight was read")

    value = one.graph.initializers["w"]
    value.const_value = ir.LazyTensor(load, dtype=ir.DataType.FLOAT, shape=ir.Shape([4]))
    before = Snapshot.of(one)
    one.graph.node(0).outputs[0].name = "other"
    assert diff(before, Snapshot.of(one)).counts()["renamed"] == 1


IF = """c = Constant <value = bool {1}> ()
y = If (c) <
    then_branch = one () => (float[N,4] t) { t = %s(x) },
    else_branch = two () => (float[N,4] e) { e = Relu(x) }
>"""


def test_subgraphs_are_compared_by_path() -> None:
    found = difference(IF % "Exp", IF % "Tanh")
    inner = [g for g in found.graphs() if g and g is not found.graph]
    assert len(inner) == 1
    assert inner[0].path.endswith(".then_branch")
    assert [n.op for n in inner[0].added] == ["Tanh"]
    assert "+     t = Tanh(x)" in to_text(found)


def test_functions_interface_and_opsets() -> None:
    text = HEADER + "agraph (float[N,4] x) => (float[N,4] y) { y = Exp(x) }\n"
    function = '<domain: "own", opset_import: ["" : 20]> twice (a) => (b) { b = %s(a, a) }'
    imported = HEADER.replace('"com.microsoft" : 1', '"own" : 1') + text.split("\n", 1)[1]
    plain, with_add = Model.from_text(text), Model.from_text(imported + function % "Add")
    found = diff(plain, with_add)
    assert [g.path for g in found.functions_added] == ["function own.twice"]
    assert {c.name for c in found.opsets} == {"own", "com.microsoft"}
    changed = diff(with_add, Model.from_text(imported + function % "Mul"))
    assert [g.path for g in changed.functions] == ["function own.twice"]
    wider = model("y = Exp(x)", signature="(float[N,8] x) => (float[N,4] y)")
    assert "input x: float[N,4] → float[N,8]" in to_text(diff(model("y = Exp(x)"), wider))


def test_provenance_both_ways() -> None:
    before = model("h = Erf(x) k = Add(h, x) y = Exp(k)")
    after = before.clone()
    rewriter = Rewriter(after, "fuse-it")
    erf, add, _ = list(after.graph)
    erf.metadata_props["fuseline.module"] = "encoder.layer.0"
    assert rewriter.permit(add)
    new = ir.node("Gelu", [erf.inputs[0]], domain="com.microsoft")
    rewriter.replace([erf, add], [new], [(add.outputs[0], new.outputs[0])])
    text = to_text(diff(before, after)).splitlines()
    removed = [line for line in text if line.startswith("- ")]
    added = [line for line in text if line.startswith("+ ")]
    assert all(line.endswith("# replaced by fuse-it/Gelu") for line in removed)
    assert len(removed) == 2
    assert added[0].endswith(f"# fuse-it replaces {erf.name or 'Erf_0'}, {add.name} in encoder.layer.0")
    assert text.index(removed[-1]) + 1 == text.index(added[0])
    entries = to_dict(diff(before, after))["graphs"][0]["hunks"][0]["entries"]
    assert [e["change"] for e in entries] == ["removed", "removed", "added", "changed"]
    assert entries[0]["replaced_by"] == ["fuse-it/Gelu"]
    assert entries[2]["node"]["pass"] == "fuse-it"


def test_context_is_like_a_unified_diff() -> None:
    chain = [f"v{i} = Relu({'x' if i == 0 else f'v{i - 1}'})" for i in range(20)]
    other = chain.copy()
    other[10] = "v10 = Exp(v9)"
    found = difference(" ".join([*chain, "y = Abs(v19)"]), " ".join([*other, "y = Abs(v19)"]))
    shown = to_text(found, context=2).splitlines()
    assert shown[2] == "@@ main: 9–14 @@"
    assert [line[0] for line in shown[3:]] == [" ", " ", "-", "+", " ", " "]


def test_parameter_steps_are_shown() -> None:
    before = model("y = MatMul(x, w)", initializers=f"<float[4,4] w = {{{','.join('1' * 16)}}}>")
    before.parameters.add(Parameter("linear.weight", "w", (4, 4)))
    after = before.clone()
    after.transpose_parameter(after.graph.initializers["w"], (1, 0))
    assert "~ parameter linear.weight: w (trainable) → w · Transpose(perm=(1, 0)) (trainable)" in to_text(
        diff(before, after)
    )


def test_renderings_agree() -> None:
    found = difference("h = Relu(x) y = Exp(h)", "h = Relu(x) y = Tanh(h)")
    assert rich_text(found).plain == to_text(found)
    assert json.loads(to_json(found, {"pass": {"name": "p"}}))["pass"] == {"name": "p"}


def test_graph_text() -> None:
    weight = f"<float[4,4] w = {{{','.join('1' * 16)}}}>"
    one = model("h = MatMul(x, w) y = Softmax <axis: int = 1> (h)", initializers=weight)
    lines = graph_text(one).splitlines()
    assert lines[0] == "opsets ai.onnx 20, com.microsoft 1"
    assert lines[1] == "graph main (x: float[N,4]) -> (y: float[N,4])"
    assert lines[2].startswith("  w = float[4,4] #")
    assert lines[3:] == ["  h = MatMul(x, w)", "  y = Softmax(h) {axis=1} : float[N,4]"]


def test_equal_hunks_are_shown_once_with_their_places() -> None:
    layer = "a{0} = Mul({1}, half) b{0} = Exp(a{0}) c{0} = Tanh(b{0}) d{0} = Sin(c{0})"
    layer += " f{0} = Neg(d{0}) h{0} = Abs(f{0}) i{0} = Neg(h{0}) e{0} = Cos(i{0})"
    body = f"{layer.format(0, 'x')} {layer.format(1, 'e0')} y = Relu(e1)"
    before = model(body, initializers="<float half = {0.5}>")
    other = model(
        body.replace("Exp(a1)", "Log(a1)").replace("Exp(a0)", "Log(a0)"), initializers="<float half = {0.5}>"
    )
    text = str(diff(before, other))
    assert text.count("- b") == 1
    assert "@@ ×2: line 1, line 8" in text
    assert "a0 = Mul(x, half=0.5)" in text
    unlike = model(
        body.replace("Exp(a1)", "Log(a1)").replace("Exp(a0)", "Abs(a0)"), initializers="<float half = {0.5}>"
    )
    assert "×2" not in str(diff(before, unlike))


def test_what_a_notebook_and_a_prompt_show() -> None:
    before, after = model("y = Exp(x)"), model("y = Tanh(x)")
    found = diff(before, after)
    assert repr(found) == "<ModelDiff: 1 added, 1 removed>"
    assert "<div style=" in found._repr_html_()
    assert repr(before) == "<Model g: 1 node, opset 20>".replace(
        "g", before.graph.name or "without a name", 1
    )
    assert str(before) == graph_text(before)
    assert "<iframe" in before._repr_html_()
    result = Pipeline.parse("eliminate-identity").run(model("a = Identity(x) y = Exp(a)"))
    assert "<td>eliminate-identity</td>" in result._repr_html_()
    verdict = Report(error="a <b> is missing")
    assert verdict._repr_html_() == '<pre style="white-space:pre-wrap">a &lt;b&gt; is missing</pre>'


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(diff_command)
    return made


def test_the_command(app: typer.Typer, tmp_path: Path) -> None:
    model("y = Exp(x)").save(tmp_path / "a.onnx")
    model("y = Tanh(x)").save(tmp_path / "b.onnx")
    a, b = str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")
    assert CliRunner().invoke(app, [a, a]).exit_code == 0
    different = CliRunner().invoke(app, [a, b])
    assert different.exit_code == 1
    assert "+ y = Tanh(x)" in different.output
    as_json = CliRunner().invoke(app, [a, b, "--json"])
    assert json.loads(as_json.output)["schema"] == "fuseline.diff"
    page = CliRunner().invoke(app, [a, b, "--html", str(tmp_path / "d.html")])
    assert page.exit_code == 1
    assert "<!doctype html>" in (tmp_path / "d.html").read_text()


def test_a_name_cannot_break_a_line() -> None:
    """Nor can it reach the terminal: what is no letter is written out."""
    before = model("y = Neg(x)", "(float[4] x) => (float[4] y)")
    other = before.clone()
    other.graph.inputs[0].name = "two\nlines \x1b[31mred"
    assert "y = Neg(two\\nlines \\x1b[31mred) : float[4]\n" in str(other)
    found = diff(before, other)
    for text in (str(found), rich_text(found).plain):
        assert "graph main (1 node)\n" in text
        assert "+ input two\\nlines \\x1b[31mred: float[4]\n" in text
