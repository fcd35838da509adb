"""The report as a person uses it, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Page

from fuseline.engine.model import Model
from fuseline.engine.observers import DumpDiffs, Verify
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.report import report_of_diff, report_of_model, write_page
from fuseline.engine.rewriting.rewriter import MODULE_KEY, SOURCE_KEY

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'
LAYERS = 8


def layered() -> Model:
    """A stack of layers as an exporter writes it: every node knows its module and source line."""
    lines, last = [], "x"
    for i in range(LAYERS):
        lines += [
            f"i{i} = Identity({last})",
            f"a{i} = Div(i{i}, r) b{i} = Erf(a{i}) c{i} = Add(b{i}, one) d{i} = Mul(i{i}, c{i})",
            f"e{i} = Mul(d{i}, half) n{i} = Softmax(e{i})",
        ]
        last = f"n{i}"
    body = "\n".join(lines)
    model = Model.from_text(
        f"{HEADER}net (float[N,4] x) => (float[N,4] {last}) "
        f"<float r = {{1.4142135}}, float one = {{1.0}}, float half = {{0.5}}> {{ {body} }}"
    )
    for node in model.graph:
        layer = str(node.outputs[0].name)[1:]
        part = "norm" if node.op_type == "Softmax" else "activation"
        node.metadata_props[MODULE_KEY] = f"encoder.layer.{layer}.{part}"
        node.metadata_props[SOURCE_KEY] = f"models/net.py:{10 + int(layer)}"
    return model


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dump")
    Pipeline.parse("lift-constants,fuse-gelu,eliminate-identity,remove-unused").run(
        layered(), observers=[DumpDiffs(folder, title="a net"), Verify("outputs")]
    )
    return folder / "report.html"


def test_timeline_and_rewrites(desktop: Page, dump: Path) -> None:
    desktop.open(dump)
    names = desktop.visible("#timeline button[data-pass] b")
    assert [n.split()[-1] for n in names] == ["fuse-gelu", "eliminate-identity", "remove-unused"]
    assert any("changed nothing" in t for t in desktop.visible("#timeline summary"))
    assert desktop.visible(".rewrite .times") == [f"×{LAYERS}"]
    assert desktop.visible(".drawing.after .name") == ["com.microsoft.Gelu"]
    desktop.click(".rewrite summary")
    assert "encoder.layer.0.activation" in " ".join(desktop.visible(".places li"))
    assert any("outputs" in t for t in desktop.visible("#timeline .check"))
    assert desktop.errors() == []


def test_modules_expand_and_collapse(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#pass=2&panel=graph")
    desktop.until(lambda: any(b.startswith(f"module encoder.layer, ×{LAYERS}") for b in desktop.boxes()))
    desktop.click_box("module encoder.layer")
    desktop.until(lambda: any(b.startswith("module 0,") for b in desktop.boxes()))
    desktop.click("#fit")
    desktop.until(lambda: sum(b.startswith("module") for b in desktop.boxes()) == 1 + LAYERS)
    desktop.click_box("module 1")
    desktop.click_box("module activation")
    desktop.until(
        lambda: any(b.startswith("com.microsoft.Gelu") and b.endswith("added") for b in desktop.boxes())
    )
    assert any(b.startswith("Erf") and b.endswith("removed") for b in desktop.boxes()), "ghosts"
    desktop.click("#collapse")
    desktop.until(lambda: len(desktop.boxes()) == 1)


def test_stepping_through_places(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#pass=2")
    seen = []
    for _ in range(LAYERS):
        desktop.script("document.body.focus()")
        desktop.type("n")
        desktop.until(lambda: desktop.visible("#inspector h2") == ["com.microsoft.Gelu"])
        seen += [t for t in desktop.visible("#inspector dd") if t.startswith("encoder.layer")]
    assert seen == [f"encoder.layer.{i}.activation" for i in range(LAYERS)]


def test_history_of_a_node(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#to=0&from=0&panel=graph&mode=after")
    desktop.script("document.getElementById('search').focus()")
    desktop.type("Erf")
    desktop.until(lambda: desktop.visible("#hits li"))
    desktop.type("\ue007")
    desktop.until(lambda: desktop.visible("#inspector h2") == ["Erf"])
    told = desktop.visible(".history li")
    assert "exported" in told[0]
    assert "fuse-gelu went replaced by com.microsoft.Gelu" in told[1]
    assert "models/net.py:10" in " ".join(desktop.visible("#inspector dd"))
    desktop.script("[...document.querySelectorAll('.history .link')].at(-1).click()")
    desktop.until(lambda: desktop.visible("#inspector h2") == ["com.microsoft.Gelu"])
    assert desktop.visible("#where")[0].startswith("1 of")


def test_slider_and_comparison_of_any_two(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#panel=graph&mode=split&from=0&to=2")
    desktop.until(lambda: desktop.boxes("left") and desktop.boxes("right"))
    assert desktop.visible("figcaption")[0] == "as it came"
    desktop.script("const slider = document.getElementById('slider'); slider.value = 1")
    desktop.script("document.getElementById('slider').dispatchEvent(new Event('input', {bubbles: true}))")
    desktop.until(lambda: desktop.visible("figcaption")[-1].endswith("fuse-gelu"))
    desktop.script("report.camera.set(5, 6, 0.5)")
    worlds = desktop.driver.find_elements("css selector", ".canvas > svg > g")
    expected = "translate(5 6) scale(0.5)"
    desktop.until(lambda: [w.get_attribute("transform") for w in worlds] == [expected, expected])


def test_a_link_can_be_shared(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#pass=2&node=fuse-gelu/Gelu")
    desktop.until(lambda: desktop.visible("#inspector h2") == ["com.microsoft.Gelu"])
    assert "node=fuse-gelu" in desktop.script("return location.hash")


ODD = {
    "nothing": "g (float[N] x) => (float[N] x) {}",
    "one node": "g (float[N] x) => (float[N] y) { y = Relu(x) }",
    "branches": "g (float[3] x, bool c) => (float[3] y) { y = If (c) <then_branch = t () => (float[3] a) "
    "{ u = Exp(x) a = Tanh(u) }, else_branch = e () => (float[3] b) { b = Neg(x) }> }",
    "a loop": "g (float[3] x, int64 n, bool c) => (float[3] y) { y = Loop (n, c, x) <body = b (int64 i, "
    "bool k, float[3] s) => (bool k2, float[3] s2) { k2 = Identity(k) s2 = Neg(s) }> }",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_odd_models(desktop: Page, tmp_path: Path, text: str) -> None:
    model = Model.from_text(f"{HEADER}{text}")
    for node, name in zip(model.nodes(), ("quote'\"s", "new\nline/<b>", "ünïcødé 🎉\u202e"), strict=False):
        node.name = name
    Pipeline.parse("eliminate-identity").run(model, observers=[DumpDiffs(tmp_path / "d")])
    # A link of another run leads nowhere, and does no harm.
    for fragment in ("", "#panel=graph&colour=cost", "#pass=99&node=no&value=none&to=77&from=-3"):
        desktop.open(tmp_path / "d" / "report.html", fragment)
        desktop.script("report.showChanges(); report.go({panel: 'graph', mode: 'split', overlay: 'memory'})")
        desktop.script("for (const uid of report.run.state(0).nodes.keys()) report.openNode(uid, 0)")
    assert desktop.errors() == []


def test_names_are_text(desktop: Page, tmp_path: Path) -> None:
    model = layered()
    node = next(iter(model.graph))
    node.name = "<script>alert(1)</script>"
    node.metadata_props[MODULE_KEY] = "<img src=x onerror=alert(2)>"
    write_page(report_of_model(model, "<b>odd</b>"), tmp_path / "odd.html")
    desktop.open(tmp_path / "odd.html")
    desktop.script("report.openName('<script>alert(1)</script>')")
    desktop.until(lambda: desktop.visible("#inspector .name") == ["<script>alert(1)</script>"])
    assert desktop.visible("#title") == ["<b>odd</b>"]
    assert desktop.errors() == []


def test_two_files(desktop: Page, tmp_path: Path) -> None:
    before = layered()
    after = Pipeline.parse("fuse-gelu").run(before).model
    write_page(report_of_diff(before, after, ("a", "b")), tmp_path / "d.html")
    desktop.open(tmp_path / "d.html")
    desktop.click("#changes")
    desktop.until(lambda: sum(b.endswith("added") for b in desktop.boxes()) == LAYERS)
    assert desktop.visible("#timeline h2") == ["Models"]
    assert desktop.visible("#timeline b") == ["a", "b"]
    assert desktop.visible("figcaption") == ["a → b"]
    write_page(report_of_diff(before, before, ("a", "a")), tmp_path / "same.html")
    desktop.open(tmp_path / "same.html")
    assert "0 changes" in desktop.visible("#timeline small")
    assert desktop.errors() == []


def test_ghosts_keep_their_wires_and_folders(desktop: Page, tmp_path: Path) -> None:
    """What is gone is drawn with what it read and who read it; what came stands where the old nodes stood."""
    text = "g (float[4] x) => (float[4] y) { a = Neg(x) b = Identity(a) c = Tanh(b) y = Neg(c) }"
    model = Model.from_text(f"{HEADER}{text}")
    for node, name in zip(
        model.graph, ("/net/in", "/net/block/same", "/net/block/act", "/net/out"), strict=True
    ):
        node.name = name
    Pipeline.parse("eliminate-identity").run(model, observers=[DumpDiffs(tmp_path / "d")])
    desktop.open(tmp_path / "d" / "report.html", "#panel=graph&mode=unified&from=0&to=1")
    wires = desktop.script(
        "return report.right.scene.edges.map(e => [e.source.label, e.target.label, e.ghost].join(' '))"
    )
    assert sorted(wires) == ["Identity Tanh true", "Neg Identity true", "Neg Tanh false", "Tanh Neg false"]
    assert any(b.startswith("module net") for b in desktop.boxes())


def test_a_layer_of_many_boxes_is_broken_into_lines(desktop: Page, tmp_path: Path) -> None:
    body = (
        " ".join(f"a{i} = Neg(x)" for i in range(30))
        + " y = Sum("
        + ",".join(f"a{i}" for i in range(30))
        + ")"
    )
    model = Model.from_text(f"{HEADER}g (float[4] x) => (float[4] y) {{ {body} }}")
    write_page(report_of_model(model, "wide"), tmp_path / "wide.html")
    desktop.open(tmp_path / "wide.html")
    heights = desktop.script("return report.right.scene.boxes.filter(b => b.label === 'Neg').map(b => b.ay)")
    assert len(heights) == 30
    assert len(set(heights)) == 4, "thirty boxes in lines of eight at most"


def test_a_phone(phone: Page, dump: Path) -> None:
    phone.open(dump)
    width = phone.script("return document.documentElement.scrollWidth")
    assert width <= 390, "nothing sticks out to the side"
    phone.click(".bottom button[data-panel=passes]")
    assert phone.visible("#timeline h2") == ["Passes"]
    phone.click(".bottom button[data-panel=graph]")
    phone.until(lambda: phone.boxes())
    phone.click(".bottom button[data-panel=details]")
    assert phone.visible("#inspector h2")


def test_six_thousand_nodes(desktop: Page, tmp_path: Path) -> None:
    cell = "a{0} = Mul(v{0}, w) b{0} = Add(a{0}, x) c{0} = Tanh(b{0}) d{0} = Identity(c{0})"
    cell += " v{1} = Add(d{0}, a{0})"
    body = " ".join(cell.format(i, i + 1) for i in range(1200))
    model = Model.from_text(
        f"{HEADER}g (float[4] x, float[4] v0) => (float[4] v1200) "
        f"<float[4] w = {{1.0,1.0,1.0,1.0}}> {{ {body} }}"
    )
    folder = tmp_path / "dump"
    Pipeline.parse("eliminate-identity,remove-unused").run(model, observers=[DumpDiffs(folder)])
    assert (folder / "report.html").stat().st_size < 15e6
    desktop.open(folder / "report.html", "#panel=graph")
    desktop.until(lambda: len(desktop.boxes()) >= 20)
    desktop.click_box("module part 3")
    desktop.until(lambda: any(b.startswith("Tanh") for b in desktop.boxes()))
    assert desktop.errors() == []
