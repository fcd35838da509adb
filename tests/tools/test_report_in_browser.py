"""The report as a person uses it, in a real browser."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path

import pytest
from browser import Page

from fuseline.engine.errors import PassError
from fuseline.engine.model import Model
from fuseline.engine.observers import DumpDiffs, Verify
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.report import report_of_diff, report_of_model, write_page
from fuseline.engine.rewriting.rewriter import MODULE_KEY, SOURCE_KEY, Rewriter

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
    # At first the run as a whole; each pass of it is a button.
    assert "Erf 8 → 0" in desktop.visible(".chips li")
    desktop.click(".did button")
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
    assert desktop.visible("#where") == ["2 fuse-gelu"]


def test_a_node_that_is_gone_is_found(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#panel=graph&mode=after")
    desktop.script("document.getElementById('search').focus()")
    desktop.type("erf")
    found = desktop.until(lambda: desktop.visible("#hits li"))
    assert len(found) == LAYERS
    assert all(text.endswith("not here, but at “as it came”") for text in found)
    desktop.type("\ue007")
    desktop.until(lambda: desktop.visible("#inspector h2") == ["Erf"])


def test_the_bar_above_the_graph_goes_from_place_to_place(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#pass=2")
    desktop.click(".rewrite .next")
    desktop.until(lambda: desktop.visible("#places span") == [f"place 1 of {LAYERS}"])
    desktop.click("#places [aria-label='Previous place']")
    desktop.until(lambda: desktop.visible("#places span") == [f"place {LAYERS} of {LAYERS}"])
    assert f"encoder.layer.{LAYERS - 1}.activation" in desktop.visible("#inspector dd")
    # What was replaced and what came in its place are in view.
    outside = (
        "const edge = document.getElementById('right').getBoundingClientRect(); return [...document"
        ".querySelectorAll('#right .box:is(.added, .removed)')].filter((b) => b.getAttribute('aria-label')"
        ".match(/Erf|Div|Gelu/)).map((b) => b.getBoundingClientRect()).filter((b) => b.top >= edge.top"
        " && b.bottom <= edge.bottom).length"
    )
    desktop.until(lambda: desktop.script(outside) >= 3)
    desktop.click("#places button:last-child")
    assert desktop.script("return document.body.dataset.panel") == "rewrites"


def test_side_by_side_a_closed_box_says_what_came_and_went(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#pass=2&panel=graph&mode=split")
    desktop.click("#collapse")
    desktop.until(lambda: [b for b in desktop.boxes("left") if "−40" in b])
    desktop.until(lambda: [b for b in desktop.boxes("right") if "+8" in b and "−" not in b])


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


def test_a_link_leads_to_the_node(desktop: Page, dump: Path) -> None:
    """The boxes around it are opened, and it is in the middle, also for an address that is entered later."""
    desktop.open(dump, "#from=0&to=0&mode=after&node=Erf_37")
    for operator in ("Erf", "Softmax"):
        node = {"Erf": "Erf_37", "Softmax": "Softmax_20"}[operator]
        desktop.script("location.hash = `#from=0&to=0&mode=after&node=${arguments[0]}`", node)
        chosen = "return document.querySelector('#right .selected.node')?.getAttribute('aria-label') ?? ''"
        desktop.until(lambda: desktop.script(chosen).startswith(operator))  # noqa: B023
        away = (
            "const [a, b] = ['#right .selected', '#right'].map((s) => document.querySelector(s)"
            ".getBoundingClientRect()); return a.x + a.width / 2 - b.x - b.width / 2"
        )
        desktop.until(lambda: abs(desktop.script(away)) < 5)  # noqa: B023
        assert desktop.visible("#inspector .name") == [node]


class Crash(Pass):
    """x → nothing"""

    name = "crash"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        raise ValueError("the <b>first</b> line\nand the second")


@pytest.mark.parametrize("before", [(), ("eliminate-identity",)], ids=["at once", "later"])
def test_a_run_that_failed_says_why(desktop: Page, tmp_path: Path, before: tuple[str, ...]) -> None:
    """Also where nothing had changed before, so that there is one point alone."""
    stages = [*(stage for text in before for stage in Pipeline.parse(text).stages), Crash()]
    with pytest.raises(PassError):
        Pipeline.of(*stages).run(layered(), observers=[DumpDiffs(tmp_path / "d")])
    desktop.open(tmp_path / "d" / "report.html")
    names = [n.split()[-1] for n in desktop.visible("#timeline button[data-pass] b")]
    assert names == [*before, Crash.name]
    (told,) = desktop.visible("#rewrites .error")
    assert told.endswith("ValueError: the <b>first</b> line\nand the second")
    assert desktop.errors() == []


def test_a_text_stays_in_its_box(desktop: Page, tmp_path: Path) -> None:
    model = layered()
    for node, module in zip(model.graph, ("M" * 500, "🎉" * 90, "漢字" * 60, "i" * 70), strict=False):
        node.metadata_props[MODULE_KEY] = module
    write_page(report_of_model(model, "wide"), tmp_path / "wide.html")
    desktop.open(tmp_path / "wide.html", "#panel=graph")
    outside = (
        "return [...document.querySelectorAll('#right .box')].filter((box) => { const edge = "
        "box.querySelector('rect').getBBox(); return [...box.querySelectorAll('text')]"
        ".some((t) => t.getBBox().width > edge.width); }).map((b) => b.textContent)"
    )
    assert any("M…" in b for b in desktop.visible("#right .box"))
    assert desktop.script(outside) == []


def test_side_by_side_both_fit(phone: Page, tmp_path: Path) -> None:
    text = "g (float[4] x) => (float[4] y) { a = Identity(x) b = Tanh(a) c = Identity(b) y = Neg(c) }"
    Pipeline.parse("eliminate-identity").run(
        Model.from_text(f"{HEADER}{text}"), observers=[DumpDiffs(tmp_path / "d")]
    )
    phone.open(tmp_path / "d" / "report.html", "#panel=graph&mode=split")
    higher = "return report.left.scene.height * report.camera.scale > report.left.size()[1]"
    phone.until(lambda: phone.boxes("left"))
    phone.until(lambda: not phone.script(higher))


def test_a_broken_page_says_so(desktop: Page, dump: Path, tmp_path: Path) -> None:
    text = dump.read_text(encoding="utf-8")
    packed = gzip.compress(b'{"passes": [], "points": [{}], "labels": []}')
    begin = text.index('id="data">') + len('id="data">')
    broken = text[:begin] + base64.b64encode(packed).decode() + text[text.index("</script>", begin) :]
    (tmp_path / "broken.html").write_text(broken, encoding="utf-8")
    desktop.driver.get((tmp_path / "broken.html").as_uri())
    desktop.until(lambda: "This report cannot be read" in " ".join(desktop.visible("body > p.status")))


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


def test_a_model_in_a_notebook(desktop: Page, tmp_path: Path) -> None:
    """The page inside another one has no address to write to, and works all the same."""
    notebook = f"<!doctype html><meta charset=utf-8><body>{layered()._repr_html_()}"
    (tmp_path / "cell.html").write_text(notebook, encoding="utf-8")
    desktop.driver.get((tmp_path / "cell.html").as_uri())
    desktop.driver.switch_to.frame(0)
    desktop.until(lambda: desktop.script("return document.body.dataset.ready") == "true")
    desktop.until(lambda: desktop.boxes())
    desktop.click_box("module encoder.layer")
    desktop.until(lambda: any(b.startswith("module 0,") for b in desktop.boxes()))
    assert desktop.visible("body > p.status") == []
    desktop.driver.switch_to.default_content()


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


def test_a_name_of_ten_thousand_characters_keeps_its_ends(desktop: Page, tmp_path: Path) -> None:
    model = layered()
    next(iter(model.graph)).name = name = "a" + "x" * 9998 + "z"
    write_page(report_of_model(model, "long"), tmp_path / "long.html")
    desktop.open(tmp_path / "long.html")
    desktop.script("report.openName(arguments[0])", name)
    (shown,) = desktop.until(lambda: desktop.visible("#inspector .name"))
    assert len(shown) < 250
    assert (shown[0], shown[-1]) == ("a", "z")


def test_the_keyboard_alone(desktop: Page, dump: Path) -> None:
    """The focus stays on the box that was opened, and goes to what was found; arrows choose in a group."""
    focused = "return document.activeElement.getAttribute('aria-label') || document.activeElement.id"
    desktop.open(dump, "#pass=2&panel=graph")
    desktop.until(lambda: desktop.boxes())
    desktop.script("document.querySelector('#right .box').focus()")
    desktop.type("\ue007")
    desktop.until(lambda: any(b.startswith("module 0,") for b in desktop.boxes()))
    desktop.until(lambda: desktop.script(focused).startswith("module encoder.layer"))
    assert desktop.script("return document.activeElement.getAttribute('aria-expanded')") == "true"
    desktop.type("/")
    desktop.until(lambda: desktop.script(focused).startswith("Search"))
    desktop.type("Softmax")
    desktop.until(lambda: len(desktop.visible("#hits li")) > 1)
    desktop.type("\ue015")
    search = (
        "return ['aria-expanded', 'aria-activedescendant'].map((a) => document.activeElement.getAttribute(a))"
    )
    assert desktop.script(search) == ["true", "hit-1"]
    desktop.type("\ue007")
    desktop.until(lambda: desktop.script(focused).startswith("Softmax"))
    desktop.script("document.querySelector('button[data-mode=unified]').focus()")
    desktop.type("\ue014")
    desktop.until(lambda: desktop.script("return document.body.dataset.mode") == "split")
    desktop.script("document.getElementById('slider').focus()")
    desktop.type("\ue012")
    desktop.until(lambda: desktop.script("return document.activeElement.ariaValueText") == "as it came")
    assert desktop.errors() == []


def test_everything_that_acts_has_a_name(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#pass=2&panel=graph")
    named = "e.textContent.trim() || e.ariaLabel || e.getAttribute('aria-labelledby') || e.labels?.length"
    unnamed = (
        "return [...document.querySelectorAll('button, input, select, [role=button], [role=group]')]"
        f".filter((e) => !({named})).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert desktop.script(unnamed) == []


def test_weights_are_found(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#from=0&to=0&panel=graph&mode=after")
    desktop.script("document.getElementById('search').focus()")
    desktop.type("half")
    desktop.until(lambda: "value half" in desktop.visible("#hits li"))
    desktop.type("\ue007")
    desktop.until(lambda: desktop.visible("#inspector h2") == ["half"])
    assert any("0.5" in t for t in desktop.visible("#inspector dd"))


def test_a_value_that_is_gone_is_described_as_it_was(desktop: Page, dump: Path) -> None:
    desktop.open(dump, "#panel=graph&value=half")
    desktop.until(lambda: desktop.visible("#inspector h2") == ["half"])
    told = desktop.script("return document.getElementById('inspector').innerText")
    assert "as it was at “2 fuse-gelu”" in told
    assert "float[] = 0.5" in told


def test_what_is_chosen_is_marked_among_changes(desktop: Page, dump: Path) -> None:
    """The frame of a box with changes gives way to that of the chosen one; side by side it is filled."""
    desktop.open(dump, "#from=1&to=2&panel=graph&mode=unified")
    frame = "return getComputedStyle(document.querySelector('#right .box.touched rect')).stroke"
    desktop.until(lambda: desktop.boxes())
    before = desktop.script(frame)
    desktop.script("report.view.box = report.right.scene.boxes[0].id; report.select()")
    desktop.until(lambda: desktop.script(frame) != before)
    desktop.script("report.go({mode: 'split'})")
    desktop.until(
        lambda: desktop.script("return document.querySelectorAll('.box.module.touched').length") == 2
    )


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
    upwards = "return report.right.scene.edges.filter(e => e.source.ay + e.source.h > e.target.ay).length"
    desktop.script("report.showChanges()")
    assert desktop.script(upwards) == 0, "what stays keeps the place that it had among those that went"


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
    phone.script("report.openPass(report.run.passes[1])")
    right = "return document.querySelector('.drawing.after').getBoundingClientRect().right"
    assert 0 < phone.script(right) < 390, "both drawings are seen without scrolling"
    phone.click(".bottom button[data-panel=passes]")
    assert phone.visible("#timeline h2") == ["Passes"]
    phone.click(".bottom button[data-panel=graph]")
    phone.until(lambda: phone.boxes())
    hidden = "return document.getElementById('minimap').hidden"
    phone.until(lambda: phone.script(hidden))  # all is in view, and the map would cover some of it
    phone.script("report.camera.zoom(2.5, 0, 0)")
    phone.until(lambda: not phone.script(hidden))
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
