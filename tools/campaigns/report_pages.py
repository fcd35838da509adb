"""How the report looks and how quick it is, in a real Chromium.

    python -m fuseline.tools.campaigns.report_pages [--output build/report] [--reuse]

Writes the pages that people get: of a training run, a quantization run, a third party's model of 6,518 nodes,
one of 6,870 from torch's exporter, a model to look at, and two files that differ. Prints of the large ones
the size, the seconds to the first paint and those from a click on a module to the frame that shows it open.
Then takes screenshots at 1280 and 390 pixels, light and dark. Exit 1 where a page is larger than 15 MB, or
slower than 2 s to paint or 0.3 s to open a module.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.observers import DumpDiffs, Verify
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.plurals import counted
from fuseline.engine.report import report_of_diff, report_of_model, write_page
from fuseline.exporters import export
from fuseline.tools.campaigns import zoo
from fuseline.tools.campaigns.browser import chromium
from fuseline.tools.campaigns.third_party import large_model
from fuseline.tools.console import console

__all__ = ["main"]

BYTES, PAINT, EXPAND = 15e6, 2.0, 0.3
_SIZES = ((1280, 860), (390, 844))
_VIEWS = {
    "rewrites": "",
    "graph": "#panel=graph&mode=unified",
    "cost": "#panel=graph&mode=after&colour=cost",
    "details": "#panel=details",
}
_PAINTED = "return (performance.getEntriesByName('first-contentful-paint')[0] || {startTime: -1}).startTime"

# From the click to the frame behind the one in which everything was drawn.
_OPEN_SOME = """
    const done = arguments[arguments.length - 1], times = [];
    const frame = () => new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)));
    const closed = () => report.right.scene.boxes.find((b) => b.kind === "module" && !report.open.has(b.id));
    (async () => {
      for (let i = 0; i < 8 && closed(); i++) {
        const begin = performance.now();
        report.pick(closed());
        await frame();
        times.push(performance.now() - begin);
      }
      done(times);
    })();
"""


def _training(folder: Path) -> Path:
    model = export(zoo.build("bert", attention="eager"), train=True, check=False)
    observers = [DumpDiffs(folder, title="BERT · training"), Verify("outputs")]
    Pipeline.resolve("training-stock").run(model, observers=observers)
    return folder / "report.html"


def _quantization(folder: Path) -> Path:
    from fuseline.tools.quantizer import quantize

    model = export(zoo.build("bert", attention="eager").eval(), check=False)
    with tempfile.TemporaryDirectory() as beside:
        quantize(model, Path(beside) / "q.onnx", {"mode": "dynamic"}, dump=folder)
    return folder / "report.html"


def _large(folder: Path) -> Path:
    """A speech decoder that others exported and quantized; nearly all of it is in the branches of an If."""
    return _optimised(Model.load(large_model()), folder, "Moonshine, a speech decoder")


def _foreign(folder: Path) -> Path:
    """Swin of its real depth, narrow, as torch's own exporter writes it, without modules or source lines."""
    import torch
    from transformers import AutoModelForImageClassification, SwinConfig

    torch.manual_seed(0)
    config = SwinConfig(embed_dim=16, depths=[2, 2, 18, 2], num_heads=[1, 2, 4, 8])
    net: Any = AutoModelForImageClassification.from_config(  # type: ignore[no-untyped-call]
        config, attn_implementation="eager"
    )
    with tempfile.TemporaryDirectory() as beside, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(beside) / "swin.onnx"
        torch.onnx.export(net.eval(), (torch.randn(1, 3, 224, 224),), path, dynamo=False, opset_version=17)
        return _optimised(Model.load(path), folder, "Swin, from torch's exporter")


def _optimised(model: Model, folder: Path, title: str) -> Path:
    console.print(f"{title}: {counted(sum(1 for _ in model.nodes()), 'node')}")
    Pipeline.resolve("inference-O1").run(model, observers=[DumpDiffs(folder, title=title)])
    return folder / "report.html"


def _two_models() -> tuple[Model, Model]:
    model = export(zoo.build("bert", attention="eager").eval(), check=False)
    return model, Pipeline.resolve("inference").run(model).model


def _view(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_page(report_of_model(_two_models()[0], "bert.onnx"), folder / "report.html")
    return folder / "report.html"


def _diff(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_page(report_of_diff(*_two_models(), ("bert.onnx", "small.onnx")), folder / "report.html")
    return folder / "report.html"


_PAGES: dict[str, Callable[[Path], Path]] = {
    "training": _training,
    "quantization": _quantization,
    "large": _large,
    "foreign": _foreign,
    "view": _view,
    "diff": _diff,
}


def _open(driver: Any, page: Path, fragment: str = "") -> None:
    driver.get("about:blank")
    driver.get(page.resolve().as_uri() + fragment)
    end = time.monotonic() + 60
    while driver.execute_script("return document.body.dataset.ready") != "true":
        if time.monotonic() > end:
            raise FuselineError(f"{page} does not become ready")
        time.sleep(0.02)
    time.sleep(0.3)  # the picture is fitted in the next frames


def measured(page: Path) -> dict[str, float]:
    """Bytes, seconds to the first paint, seconds to open a module (the worst of the first ones)."""
    with chromium(*_SIZES[0]) as driver:
        _open(driver, page, "#panel=graph")
        painted = float(driver.execute_script(_PAINTED)) / 1e3
        opening = driver.execute_async_script(_OPEN_SOME)
    return {"bytes": page.stat().st_size, "paint": painted, "expand": max(map(float, opening)) / 1e3}


def screenshots(pages: dict[str, Path], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for width, height in _SIZES:
        for dark in (False, True):
            with chromium(width, height, dark=dark) as driver:
                for name, page in pages.items():
                    for view, fragment in _VIEWS.items():
                        if view == "details" and width > 500:
                            continue  # they are beside the others
                        _open(driver, page, fragment)
                        target = folder / f"{name}-{view}-{width}-{'dark' if dark else 'light'}.png"
                        driver.save_screenshot(str(target))
                        made.append(target)
    return made


def _within(name: str, found: dict[str, float]) -> bool:
    console.print(
        f"{name}: {found['bytes'] / 1e6:.1f} MB, first paint {found['paint']:.2f} s, a module opens in "
        f"{found['expand'] * 1e3:.0f} ms (at most {BYTES / 1e6:.0f} MB, {PAINT} s, {EXPAND * 1e3:.0f} ms)"
    )
    return found["bytes"] <= BYTES and found["paint"] <= PAINT and found["expand"] <= EXPAND


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("build/report"))
    parser.add_argument("--reuse", action="store_true", help="only look again at what was made before")
    options = parser.parse_args()
    pages = {name: options.output / name / "report.html" for name in _PAGES}
    if not options.reuse:
        pages = {name: write(options.output / name) for name, write in _PAGES.items()}
    good = [_within(name, measured(pages[name])) for name in ("large", "foreign")]
    for path in screenshots(pages, options.output / "screenshots"):
        console.print(f"wrote {path}")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
