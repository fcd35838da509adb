"""The data behind a report: it must rebuild the model at every point."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fuseline.engine.model import Model
from fuseline.engine.observer import Observer
from fuseline.engine.observers import DumpDiffs
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.report import report_of_diff, report_of_model
from fuseline.engine.report.page import page

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'
GELUS = """g (float[N,4] x) => (float[N,4] y)
<float r = {1.4142135}, float one = {1.0}, float half = {0.5}> {
    a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, c) e = Mul(d, half)
    i = Identity(e)
    f = Div(i, r) h = Erf(f) j = Add(h, one) k = Mul(i, j) y = Mul(k, half)
}"""


def unpack(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', text)
    assert found is not None
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return data


def rebuilt(data: dict[str, Any], point: int) -> dict[int, list[Any]]:
    """Node number → version, as the page computes it."""
    nodes: dict[int, list[Any]] = {}
    for step in data["points"][: point + 1]:
        for number in step["gone"]:
            del nodes[number]
        nodes.update({number: data["versions"][version] for _, number, version in step["came"]})
    return nodes


class _Names(Observer):
    """The nodes after every pass that changed something."""

    def __init__(self) -> None:
        self.points: list[set[tuple[str, str]]] = []

    def _note(self, model: Model) -> None:
        self.points.append({(n.name or "", n.op_type) for n in model.nodes()})

    def started(self, model: Model) -> None:
        self._note(model)

    def after(self, record: Any, model: Model) -> None:
        if record.changes:
            self._note(model)


def run(text: str, pipeline: str, folder: Path) -> tuple[dict[str, Any], _Names]:
    names = _Names()
    Pipeline.parse(pipeline).run(Model.from_text(HEADER + text), observers=[DumpDiffs(folder), names])
    return unpack((folder / "report.html").read_text()), names


def test_every_point_is_the_model(tmp_path: Path) -> None:
    data, names = run(GELUS, "fuse-gelu,eliminate-identity,remove-unused", tmp_path)
    assert len(names.points) == len(data["points"]) > 2
    for point, expected in enumerate(names.points):
        found = {(v[0], v[1].rpartition(".")[2]) for v in rebuilt(data, point).values()}
        assert found == expected


def test_equal_rewrites_are_drawn_once(tmp_path: Path) -> None:
    data, _ = run(GELUS, "fuse-gelu", tmp_path)
    (group,) = data["passes"][0]["rewrites"]
    assert len(group["places"]) == 2
    assert [n["op"] for n in group["before"]["nodes"]] == ["Div", "Erf", "Add", "Mul", "Mul"]
    assert group["before"]["nodes"][2]["operands"] == ["#1", "1"]
    assert [n["op"] for n in group["after"]["nodes"]] == ["com.microsoft.Gelu"]


def test_a_constant_node_is_a_number_too(tmp_path: Path) -> None:
    numbers = {"r": 1.4142135, "one": 1.0, "half": 0.5}
    constants = " ".join(f"{name} = Constant<value_float = {n}>()" for name, n in numbers.items())
    header, _, body = GELUS.partition("<float r = {1.4142135}, float one = {1.0}, float half = {0.5}> {")
    data, _ = run(f"{header}{{ {constants} {body}", "fuse-gelu", tmp_path)
    (group,) = data["passes"][0]["rewrites"]
    assert group["before"]["nodes"][2]["operands"] == ["#1", "1"]


def test_a_survivor_keeps_its_number(tmp_path: Path) -> None:
    data, _ = run(GELUS, "fuse-gelu,eliminate-identity", tmp_path)
    gelus = [{n: v for n, v in rebuilt(data, p).items() if "Gelu" in v[1]} for p in (1, 2)]
    assert set(gelus[0]) == set(gelus[1])
    assert list(gelus[0].values()) != list(gelus[1].values()), "the second one reads another value"


def test_a_reverted_pass_leaves_no_point(tmp_path: Path) -> None:
    from fuseline.engine.errors import GateFailed

    class Refuse(Observer):
        def after(self, record: Any, model: Model) -> None:
            if record.name == "fuse-gelu":
                raise GateFailed("no")

    Pipeline.parse("fuse-gelu,eliminate-identity").run(
        Model.from_text(HEADER + GELUS), observers=[DumpDiffs(tmp_path), Refuse()], revert_failing=True
    )
    data = unpack((tmp_path / "report.html").read_text())
    assert [(p["name"], p["reverted"], p["point"]) for p in data["passes"]] == [
        ("fuse-gelu", True, 0),
        ("eliminate-identity", False, 1),
    ]
    assert len(data["points"]) == 2


def test_subgraphs_and_functions_are_boxes() -> None:
    text = """g (bool c, float[4] x) => (float[4] y) {
        y = If (c) <then_branch = t () => (float[4] a) { a = Relu(x) },
                    else_branch = e () => (float[4] b) { b = local.twice(x) }> }
    <domain: "local", opset_import: ["" : 20]> twice (v) => (w) { w = Add(v, v) }"""
    header = '<ir_version: 10, opset_import: ["" : 20, "local" : 1]>\n'
    data = report_of_model(Model.from_text(header + text), "m")
    boxes = {path.replace("\u001f", "/") for path in data["points"][0]["containers"]}
    assert any(path.endswith(".then_branch") for path in boxes)
    assert any(path.startswith("function local.twice") for path in boxes)


def test_a_long_flat_graph_is_cut_into_parts() -> None:
    body = " ".join(f"v{i + 1} = Relu(v{i})" for i in range(400))
    data = report_of_model(Model.from_text(f"{HEADER}g (float[4] v0) => (float[4] v400) {{ {body} }}"), "m")
    assert max(len(layout) for layout in data["layouts"]) <= 100


def test_two_files() -> None:
    before = Model.from_text(HEADER + "g (float[4] x) => (float[4] y) { h = Relu(x) y = Exp(h) }")
    after = Model.from_text(HEADER + "g (float[4] x) => (float[4] y) { hh = Relu(x) y = Tanh(hh) }")
    data = report_of_diff(before, after, ("a", "b"))
    first, second = rebuilt(data, 0), rebuilt(data, 1)
    shared = set(first) & set(second)
    assert [first[n][1] for n in shared] == ["Relu"], "a renamed node is the same node"


def test_nothing_of_a_model_is_markup() -> None:
    model = Model.from_text(HEADER + "g (float[4] x) => (float[4] y) { y = Relu(x) }")
    node = next(iter(model.graph))
    node.name = "</script><script>alert(1)</script>"
    text = page(report_of_model(model, "<b>title</b>"))
    assert "alert(1)" not in text
    assert "&lt;b&gt;title&lt;/b&gt;" in text


@pytest.mark.parametrize("point", [0, 1])
def test_weights_are_described(tmp_path: Path, point: int) -> None:
    weight = "<float[1,4] w = {1.0, 2.0, 3.0, 4.0}>"
    text = f"g (float[N,4] x) => (float[N,4] y) {weight} {{ h = Identity(w) y = Mul(x, h) }}"
    data, _ = run(text, "eliminate-identity", tmp_path)
    numbers: dict[str, int] = {}
    for step in data["points"][: point + 1]:
        numbers.update(step["weights"])
    assert data["weights"][numbers["w"]] == {"type": "float[1,4]", "elements": ["1", "2", "3", "4"]}


def test_two_branches_may_use_one_name(tmp_path: Path) -> None:
    """Values, weights and numbers of one name in two branches are not mistaken for each other."""
    branch = "() => (float[4] {0}) <float k = {{{1}}}> {{ i = Identity(x) {0} = Mul(i, k) }}"
    text = (
        "g (float[4] x, bool c) => (float[4] y) { y = If (c) "
        f"<then_branch = t {branch.format('a', '2.0')}, else_branch = e {branch.format('b', '3.0')}> }}"
    )
    data, _ = run(text, "eliminate-identity", tmp_path)
    weights = {
        key.split("\x1f")[0][-11:]: data["weights"][w] for key, w in data["points"][0]["weights"].items()
    }
    assert {key: row["elements"] for key, row in weights.items()} == {
        "then_branch": ["2"],
        "else_branch": ["3"],
    }
    outermost = {child: layer for child, layer, _ in data["layouts"][data["points"][0]["containers"][""]]}
    branches = {str(child)[-11:]: layer for child, layer in outermost.items() if isinstance(child, str)}
    (holder,) = (layer for child, layer in outermost.items() if isinstance(child, int))
    assert branches == {"then_branch": 0, "else_branch": 0}, "neither reads the other"
    assert holder == 1, "both lead to the If"


def test_rewrites_inside_a_function_are_drawn(tmp_path: Path) -> None:
    """Nodes of functions have names, too, by which a rewrite finds them."""
    model = Model.from_text(
        '<ir_version: 10, opset_import: ["" : 20, "my" : 1]>\n'
        "g (float[4] x) => (float[4] y) { a = my.F(x) y = Neg(a) }\n"
        '<domain: "my", opset_import: ["" : 20]> F (p) => (r) { h = Identity(p) r = Tanh(h) }'
    )
    assert len({n.name for n in model.nodes() if n.name}) == 4
    Pipeline.parse("eliminate-identity").run(model, observers=[DumpDiffs(tmp_path / "d")])
    (row,) = unpack((tmp_path / "d" / "report.html").read_text())["passes"]
    (rewrite,) = row["rewrites"]
    assert [n["op"] for n in rewrite["before"]["nodes"]] == ["Identity"]
