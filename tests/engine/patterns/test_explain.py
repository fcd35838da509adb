"""The near-miss report."""

from __future__ import annotations

import json

from fuseline.engine.model import Model
from fuseline.engine.patterns import explain
from fuseline.engine.rewriting.rewriter import MODULE_KEY
from fuseline.passes.fusion.fuse_gelu import FuseGelu

GELU = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 4] x) => (float[n, 4] out) <float root = {ROOT}, float one = {ONE}, float half = {HALF}> {
    d = Div(x, root)
    e = Erf(d)
    a = Add(e, one)
    m = Mul(x, a)
    out = Mul(m, half)
}
"""


def gelu(root: float = 1.4142135, one: float = 1.0, half: float = 0.5) -> Model:
    text = (
        GELU.replace("{ROOT}", f"{{{root}}}").replace("{ONE}", f"{{{one}}}").replace("{HALF}", f"{{{half}}}")
    )
    model = Model.from_text(text)
    for node in model.nodes():
        node.metadata_props[MODULE_KEY] = "encoder.layer.0.intermediate"
    return model


def test_a_match_is_listed_and_its_parts_are_no_near_misses() -> None:
    explanation = explain(FuseGelu(), gelu())
    assert [s.op_type for s in explanation.matches] == ["Mul"]
    assert explanation.matches[0].module == "encoder.layer.0.intermediate"
    assert explanation.near_misses == ()


def test_one_altered_constant_names_the_node_and_both_values() -> None:
    for kind, model, found, expected in [
        ("Div", gelu(root=1.5), "the constant 1.5", "the constant 1.414213"),
        ("Add", gelu(one=1.25), "the constant 1.25", "the constant 1.0"),
        ("Mul", gelu(half=0.75), "the constant 0.75", "the constant 0.5"),
    ]:
        nearest = explain(FuseGelu(), model).near_misses[0]
        assert nearest.op_type == kind
        assert nearest.found == found
        assert nearest.expected.startswith(expected)
        assert (nearest.matched, nearest.size) == (5, 5)
        assert nearest.module == "encoder.layer.0.intermediate"


def test_a_refusal_is_the_nearest_miss() -> None:
    model = gelu()
    model.graph.outputs.append(next(n for n in model.nodes() if n.op_type == "Erf").outputs[0])
    explanation = explain(FuseGelu(), model)
    assert explanation.matches == ()
    assert explanation.near_misses[0].found == "the intermediate 'e' of Erf is an output of the graph"


def test_text_and_json() -> None:
    explanation = explain(FuseGelu(), gelu(root=1.5))
    assert "0 matches" in str(explanation)
    assert "5 of 5 nodes fit, then at Div" in str(explanation)
    data = json.loads(explanation.to_json())
    assert data["name"] == "fuse-gelu"
    assert data["near_misses"][0]["found"] == "the constant 1.5"
