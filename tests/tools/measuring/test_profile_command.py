"""`fuseline profile`: where time goes, by operator and module. No test looks at how long anything took."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from shell import fuseline

from fuseline.engine.facts import Training
from fuseline.engine.inputs import generate
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import MODULE_KEY
from fuseline.tools.measuring.flame import flame
from fuseline.tools.measuring.hints import hints
from fuseline.tools.measuring.profile import NodeTime, Profile, record_profile
from fuseline.tools.measuring.subject import inputs_for

HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
GELU = f"""{HEADER}
g (float[N,4] x) => (float[N,4] y) <float half = {{0.5}}, float one = {{1.0}}, float root = {{1.4142135}}>
{{
    a = Div(x, root)  b = Erf(a)  c = Add(b, one)  d = Mul(x, c)  e = Mul(d, half)  y = Softmax(e)
}}"""


def gelu() -> Model:
    model = Model.from_text(GELU)
    for node in model.graph:
        node.metadata_props[MODULE_KEY] = "net.norm" if node.op_type == "Softmax" else "net.activation"
    return model


def profile_of(model: Model) -> Profile:
    return record_profile(model, generate(model), name="m", runs=2, threads=1)


def test_what_the_runtime_fuses_counts_where_its_result_is_made() -> None:
    model = gelu()
    profile = profile_of(model)
    assert {n.op: n.module for n in profile.nodes} == {"Gelu": "net.activation", "Softmax": "net.norm"}
    last = next(n for n in model.graph if n.outputs[0].name == "e")
    assert profile.nodes[0].name == last.name
    assert profile.runs == 2
    assert all(n.bytes > 0 for n in profile.nodes)


def test_a_branch_is_counted_once() -> None:
    text = f"""{HEADER}
    g (float[3] x, bool c) => (float[3] y) {{
        y = If (c) <then_branch = t () => (float[3] a) {{ u = Exp(x) a = Tanh(u) }},
                    else_branch = e () => (float[3] b) {{ b = Neg(x) }}>
    }}"""
    model = Model.from_text(text)
    feeds = {**generate(model), "c": np.array(True)}
    profile = record_profile(model, feeds, name="m", runs=2, threads=1)
    assert {n.op for n in profile.nodes} == {"If", "Exp", "Tanh"}
    assert sum(n.seconds for n in profile.nodes) <= profile.seconds + 1e-6


@pytest.mark.parametrize("name", ['a "quoted" name', "two\nlines", "back\\slash", "ü☃", "</script>"])
def test_a_name_that_the_profiler_does_not_escape(name: str) -> None:
    model = gelu()
    next(n for n in model.graph if n.op_type == "Softmax").name = name
    assert {n.name: n.module for n in profile_of(model).nodes}[name] == "net.norm"


def test_hints_name_the_pass_that_would_apply() -> None:
    model = gelu()
    profile = profile_of(model)
    assert [h.name for h in hints(profile, model) if h.text.startswith("applies")] == ["fuse-gelu"]
    done = Pipeline.resolve("inference").run(model).model
    assert [h for h in hints(profile_of(done), done) if h.text.startswith("applies")] == []


@pytest.mark.native
def test_a_training_step() -> None:
    text = f"""{HEADER}
    g (float[N,4] x, int64[N] labels) => (float loss) <float[4,3] w = {{{",".join(["0.5"] * 12)}}}>
    {{ h = MatMul(x, w) loss = SoftmaxCrossEntropyLoss(h, labels) }}"""
    model = Model.from_text(text)
    model.parameters.add(Parameter("w", "w", (4, 3), "float32"))
    model.facts.training = Training(loss="loss")
    model.establish(Property.TRAINING)
    step = Pipeline.parse("training,insert-optimizer").run(model).model
    feeds = inputs_for(step, ["N=5"], None)
    assert set(feeds) >= {"x", "labels"}
    assert feeds["x"].shape == (5, 4)
    profile = record_profile(step, feeds, name="m", runs=2, threads=1)
    assert any(n.backward for n in profile.nodes)
    assert any(not n.backward for n in profile.nodes)


def test_the_flame_chart_is_as_wide_as_time() -> None:
    names = ("a.b", "a.c", "")
    nodes = [
        NodeTime(f"n{i}", "Relu<", module, "", i == 1, float(i + 1), 4) for i, module in enumerate(names)
    ]
    tree = ET.fromstring(flame(Profile("a <model>", 6.0, 1, nodes)))
    frames = {g[0].text: float(g[1].attrib["width"]) for g in tree.iter("{http://www.w3.org/2000/svg}g")}
    whole = frames["one run: 6000.000 ms, 100.0 %"]
    half = frames["one run / (no module): 3000.000 ms, 50.0 %"]
    assert half / whole == pytest.approx(0.5, abs=0.01)
    assert "one run / backward / a / c / Relu<: 2000.000 ms, 33.3 %" in frames


def test_the_command(tmp_path: Path) -> None:
    gelu().save(tmp_path / "a.onnx")
    Pipeline.resolve("inference").run(gelu()).model.save(tmp_path / "b.onnx")
    words = ("profile", "a.onnx", "-o", "a.json", "--svg", "a.svg", "--runs", 2, "--size", "N=5")
    shown = fuseline(*words, cwd=tmp_path).stdout
    assert "net.activation" in shown
    assert "hint: fuse-gelu applies in 1 place" in shown
    assert "net" in (tmp_path / "a.svg").read_text()
    both = fuseline("profile", "b.onnx", "--against", "a.json", "--runs", 2, cwd=tmp_path).stdout
    assert "com.microsoft.Gelu" in both
    (tmp_path / "odd.json").write_text(json.dumps({"schema": "other"}))
    told = fuseline("profile", "odd.json", cwd=tmp_path, code=2).stderr
    assert "odd.json is no profile" in told
