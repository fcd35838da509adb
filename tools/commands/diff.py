"""`fuseline diff`: the structural difference of two models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fuseline.tools.console import console

__all__ = ["diff_command"]


def diff_command(
    before: Annotated[Path, typer.Argument(help="An .onnx file.")],
    after: Annotated[Path, typer.Argument(help="Another .onnx file.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Machine-readable, see docs/diff-schema.md.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write one standalone HTML page to this file.")] = None,
    context: Annotated[int, typer.Option(min=0, help="Unchanged nodes shown around a change.")] = 3,
) -> None:
    """Show what differs between two models, node by node. Exit code 0: equal, 1: different."""
    from fuseline.engine.diff import diff
    from fuseline.engine.diff.as_json import to_json
    from fuseline.engine.diff.text import rich_text
    from fuseline.engine.model import Model
    from fuseline.engine.outputs import check_output_file
    from fuseline.engine.report import report_of_diff, write_page
    from fuseline.tools.progress import activity

    if html is not None:
        check_output_file(html, beside=(before, after))
    with activity(quiet=as_json, lines=False) as tell:
        tell("reading")
        old, new = Model.load(before), Model.load(after)
        tell("comparing")
        found = diff(old, new)
        if html is not None:
            tell("drawing")
            write_page(report_of_diff(old, new, (before.name, after.name)), html)
    if as_json:
        sys.stdout.write(to_json(found, context=context))
    elif html is None:
        console.print(rich_text(found, context=context), end="", soft_wrap=True)
    else:
        console.print(f"wrote {html}")
    if found:
        raise typer.Exit(1)
