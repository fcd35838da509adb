"""`fuseline view`: a model, or the report of a dump, in the browser."""

from __future__ import annotations

import shutil
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fuseline.engine.errors import FuselineError
from fuseline.tools.console import console

if TYPE_CHECKING:
    from fuseline.tools.progress import Activity

__all__ = ["view_command"]


def view_command(
    source: Annotated[Path, typer.Argument(help="An .onnx file, or the folder of a dump.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the page here instead of a temporary file.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it.")] = True,
) -> None:
    """Look at a model, or at what every pass of a dumped run did, in the browser."""
    page = _dumped(source, output) if source.is_dir() else _written(source, output)
    console.print(f"the report is {page}")
    if browser and not webbrowser.open(page.resolve().as_uri()):
        console.print("no browser was found; open the file yourself")


def _dumped(folder: Path, output: Path | None) -> Path:
    from fuseline.engine.observers.dump_diffs import REPORT, SUMMARY
    from fuseline.engine.outputs import check_output_file

    page = folder / REPORT
    if not page.is_file():
        if (folder / SUMMARY).is_file():
            raise FuselineError(
                f"{folder} holds no {REPORT}: the run that dumped here did not finish",
                hint="its .diff files show what the passes before that did",
            )
        raise FuselineError(
            f"{folder} holds no {REPORT}", hint="make one with `fuseline run MODEL -o OUT --dump DIR`"
        )
    if output is None:
        return page
    return Path(shutil.copyfile(page, check_output_file(output, beside=[page])))


def _written(path: Path, output: Path | None) -> Path:
    from fuseline.engine.outputs import check_output_file
    from fuseline.tools.progress import activity

    if output is not None:
        check_output_file(output, beside=[path])
    with activity(lines=False) as tell:
        return _page(path, output, tell)


def _page(path: Path, output: Path | None, tell: Activity) -> Path:
    from fuseline.engine.model import Model
    from fuseline.engine.report import report_of_model, write_page

    tell(f"reading {path.name}")
    model = Model.load(path)
    tell("drawing")
    page = output or Path(tempfile.mkdtemp(prefix="fuseline-view-")) / f"{path.stem}.html"
    write_page(report_of_model(model, path.name), page)
    return page
