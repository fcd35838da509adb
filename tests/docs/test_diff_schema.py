"""docs/diff-schema.md names the members that the JSON of a dump really has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documents import ROOT

from fuseline.engine.model import Model
from fuseline.engine.observers import DumpDiffs
from fuseline.engine.pipeline import Pipeline

PAGE = (ROOT / "docs" / "diff-schema.md").read_text()
# What a diff can show: a rewrite, a constant, a subgraph, a function, an operator of another domain.
MODEL = """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
g (float[N,4] x, bool c) => (float[N,4] y, float[N,4] z, float[N,4] w, float[N,4] m, float[N,4] n)
<float r = {1.4142135}, float one = {1.0}, float half = {0.5}, float zero = {0.0}> {
    a = Div(x, r) b = Erf(a) d = Add(b, one) e = Mul(x, d) f = Mul(e, half)
    l = Div(x, r) m = Erf(l) h = Add(m, one) j = Mul(x, h) n = Mul(j, half)
    i = Identity(f)
    y = Relu(i)
    z = If(c) <then_branch = t () => (float[N,4] p) { q = Identity(x) p = Neg(q) },
               else_branch = s () => (float[N,4] o) { o = Abs(x) }>
    w = local.double(x)
}
<domain: "local", opset_import: ["" : 20]>
double (v) => (u) { k = Identity(v) u = Add(k, v) }
"""
# By name: of functions, operators and whatever else a model calls its own.
OWN_NAMES = {"attributes", "graphs", "statistics", "inputs", "outputs"}


def _members(data: Any) -> Iterator[str]:
    if isinstance(data, list):
        for entry in data:
            yield from _members(entry)
    elif isinstance(data, dict):
        for name, value in data.items():
            yield name
            if name not in OWN_NAMES or isinstance(value, list):
                yield from _members(value)


def _dumped(folder: Path) -> tuple[set[str], set[str]]:
    pipeline = Pipeline.parse("fuse-gelu,eliminate-identity,inline-functions,remove-unused")
    pipeline.run(Model.from_text(MODEL), [DumpDiffs(folder)])
    diffs = [json.loads(p.read_text()) for p in folder.glob("0*.json")]
    summary = json.loads((folder / "summary.json").read_text())
    # A pass is described once, with the summary.
    passes = [diff.pop("pass") for diff in diffs]
    return {"pass", *_members(diffs)}, {*_members(summary), *_members(passes)}


def test_every_member_is_described_and_there_is_no_other(tmp_path: Path) -> None:
    diff, summary = _dumped(tmp_path / "dump")
    about_diffs, about_summaries = PAGE.split("## The summary of a dump")
    for members, text in ((diff, about_diffs), (summary, about_summaries)):
        assert not [m for m in members if not re.search(rf'[`"]{re.escape(m)}[`"]', text)]
    shown = {
        m for block in re.findall(r"(?s)```jsonc\n(.*?)```", PAGE) for m in re.findall(r'"(\w+)":', block)
    }
    assert shown <= diff | summary
