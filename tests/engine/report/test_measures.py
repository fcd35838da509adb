"""What the report colours nodes by, and why a place was not fused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fuseline.engine.model import Model
from fuseline.engine.observers import DumpDiffs, Verify
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.report.measures import measures
from fuseline.engine.report.misses import near_misses
from fuseline.engine.verification.difference import largest_difference
from fuseline.engine.verification.verifier import Results

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'
NEARLY = f"""{HEADER}
g (float[N,4] x) => (float[N,4] y) <float third = {{0.3}}, float one = {{1.0}}, float root = {{1.4142135}}>
{{ a = Div(x, root)  b = Erf(a)  c = Add(b, one)  d = Mul(x, c)  y = Mul(d, third) }}"""


def test_costs_at_typical_sizes() -> None:
    weight = ",".join(["1.0"] * 12)
    model = Model.from_text(
        f"{HEADER}g (float[N,4] x) => (float[N,3] y) <float[4,3] w = {{{weight}}}> {{ y = MatMul(x, w) }}"
    )
    sizes, found = measures(model)
    (operations, made), size = next(iter(found.values())), sizes["N"]
    assert operations == 2 * size * 4 * 3
    assert made == size * 3 * 4


def test_what_is_counted_while_running_counts_as_all() -> None:
    weight = ",".join(["1.0"] * 12)
    model = Model.from_text(
        f"{HEADER}g (float[N,4] x, bool[N] some) => (float[M,3] y) <float[4,3] w = {{{weight}}}, "
        "int64[1] line = {-1}> { n = NonZero(some) i = Reshape(n, line) r = Gather(x, i) y = MatMul(r, w) }"
    )
    model = Pipeline.parse("infer-shapes").run(model).model
    sizes, found = measures(model)
    product = next(n.name for n in model.graph if n.op_type == "MatMul")
    assert found[str(product)] == (2 * sizes["N"] * 4 * 3, sizes["N"] * 3 * 4)


def test_strings_have_no_size() -> None:
    text = (
        f"{HEADER}g (string[N] x) => (string[N] y, float[N] z) {{ y = Identity(x)  z = Cast <to = 1> (x) }}"
    )
    _, found = measures(Model.from_text(text))
    assert sorted(made for _, made in found.values())[0] == 0


def test_near_misses_name_both_ends() -> None:
    model = Model.from_text(NEARLY)
    rows = near_misses(model, Pipeline.parse("fuse-gelu,remove-unused").passes())
    assert {row["pass"] for row in rows} == {"fuse-gelu"}
    assert "0.3" in rows[0]["text"]
    names = {node.name for node in model.graph}
    assert {rows[0]["root"], rows[0]["node"]} <= names


def test_the_largest_difference() -> None:
    was = Results([{"y": np.array([1.0, -2.0]), "n": np.array([3])}])
    now = Results([{"y": np.array([1.0, -2.001]), "n": np.array([4])}])
    assert largest_difference(was, now) == pytest.approx(0.0005)
    odd = Results([{"y": np.array([np.nan, np.inf])}])
    assert largest_difference(odd, odd) == 0.0
    assert largest_difference(Results([{}]), Results([{}])) == 0.0


def test_a_dump_says_how_far_results_moved(tmp_path: Path) -> None:
    model = Model.from_text(NEARLY.replace("0.3", "0.5"))
    Pipeline.parse("fuse-gelu").run(model, observers=[DumpDiffs(tmp_path / "d"), Verify("outputs")])
    row = json.loads((tmp_path / "d" / "summary.json").read_text())["passes"][0]
    assert row["verification"] == "outputs unchanged"
    assert 0 <= row["difference"] < 1e-5
