"""How the report looks and how quick it is, in a real Chromium.

    python -m fuseline.tools.campaigns.report_pages [--layers 110] [--output build/report]

Exports a BERT of many small layers until the graph has about 6,000 nodes, runs the pipeline `inference-O1` on
it with a dump, and prints the size of the page, the seconds to its first paint and those to open a module.
Then takes screenshots at 1280 and 390 pixels, light and dark, of that report and of a small training run.
Exit 1 where the page is larger than 15 MB, or slower than 2 s to paint or 0.3 s to open a module.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuseline.engine.errors import FuselineError
from fuseline.engine.observers import DumpDiffs, Verify
from fuseline.engine.pipeline import Pipeline
from fuseline.exporters import export
from fuseline.tools.campaigns import zoo
from fuseline.tools.console import console

__all__ = ["main"]

BYTES, PAINT, EXPAND = 15e6, 2.0, 0.3
_WIDTHS = {1280: 860, 390: 844}
_VIEWS = {
    "rewrites": "",
    "graph": "#panel=graph&mode=unified",
    "cost": "#panel=graph&mode=after&colour=cost",
    "details": "#panel=details",
}
_PAINTED = "return (performance.getEntriesByName('first-contentful-paint')[0] || {startTime: -1}).startTime"

_OPEN_SOME = """
    const closed = () => report.right.scene.boxes.find((b) => b.kind === "module" && !report.open.has(b.id));
    let worst = 0;
    for (let i = 0; i < 6 && closed(); i++) {
      const begin = performance.now();
      report.pick(closed());
      document.body.getBoundingClientRect();
      worst = Math.max(worst, performance.now() - begin);
    }
    return worst;
"""


def large_report(folder: Path, layers: int) -> Path:
    """A model as exporters write them, with thousands of nodes."""
    model = export(zoo.build("bert", attention="eager", num_hidden_layers=layers).eval(), check=False)
    console.print(f"{layers} layers: {sum(1 for _ in model.nodes()):,} nodes")
    Pipeline.resolve("inference-O1").run(model, observers=[DumpDiffs(folder, title=f"BERT, {layers} layers")])
    return folder / "report.html"


def training_report(folder: Path) -> Path:
    model = export(zoo.build("bert", attention="eager"), train=True, check=False)
    observers = [DumpDiffs(folder, title="BERT · training"), Verify("outputs")]
    Pipeline.resolve("training-stock").run(model, observers=observers)
    return folder / "report.html"


@contextmanager
def chromium(width: int, *, dark: bool = False) -> Iterator[Any]:
    from selenium import webdriver

    driver = shutil.which("chromedriver")
    if driver is None:
        raise FuselineError("chromedriver is not installed", hint="Debian: chromium, chromium-driver")
    options = webdriver.ChromeOptions()
    height = _WIDTHS[width]
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},{height}"):
        options.add_argument(argument)
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield opened
    finally:
        opened.quit()


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
    with chromium(1280) as driver:
        _open(driver, page, "#panel=graph")
        painted = float(driver.execute_script(_PAINTED)) / 1e3
        opening = driver.execute_script(_OPEN_SOME)
    return {"bytes": page.stat().st_size, "paint": painted, "expand": float(opening) / 1e3}


def screenshots(pages: dict[str, Path], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for width in _WIDTHS:
        for dark in (False, True):
            with chromium(width, dark=dark) as driver:
                for name, page in pages.items():
                    for view, fragment in _VIEWS.items():
                        if view == "details" and width > 500:
                            continue
                        _open(driver, page, fragment)
                        target = folder / f"{name}-{view}-{width}-{'dark' if dark else 'light'}.png"
                        driver.save_screenshot(str(target))
                        made.append(target)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=110)
    parser.add_argument("--output", type=Path, default=Path("build/report"))
    parser.add_argument("--reuse", action="store_true", help="only look again at what was made before")
    options = parser.parse_args()
    pages = {name: options.output / name / "report.html" for name in ("training", "large")}
    if not options.reuse:
        training_report(options.output / "training")
        large_report(options.output / "large", options.layers)
    found = measured(pages["large"])
    console.print(
        f"{found['bytes'] / 1e6:.1f} MB, first paint {found['paint']:.2f} s, a module opens in "
        f"{found['expand'] * 1e3:.0f} ms (at most {BYTES / 1e6:.0f} MB, {PAINT} s, {EXPAND * 1e3:.0f} ms)"
    )
    for path in screenshots(pages, options.output / "screenshots"):
        console.print(f"wrote {path}", markup=False)
    return int(found["bytes"] > BYTES or found["paint"] > PAINT or found["expand"] > EXPAND)


if __name__ == "__main__":
    sys.exit(main())
