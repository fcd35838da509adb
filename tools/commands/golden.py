"""`fuseline passes test`: golden files of passes of one's own, anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fuseline.engine.plurals import counted
from fuseline.tools.commands.options import Json, Junit, Plugins
from fuseline.tools.console import console, print_json

__all__ = ["golden_command"]


def golden_command(
    path: Annotated[
        Path, typer.Argument(help="A plugin (.py, golden files beside it), a golden file, or a folder.")
    ],
    rewrite: Annotated[
        bool, typer.Option("--update", help="Write what the passes make into the files, then read the diff.")
    ] = False,
    plugin: Plugins = None,
    junit: Junit = None,
    as_json: Json = False,
) -> None:
    """Run golden files: what a pass makes of a model, as ONNX text. Exit code 1: a case does not hold.

    Each case is compared with its expectation, run before and after on ONNX Runtime, and transformed a
    second time to see that nothing more changes.
    """
    from fuseline.engine.outputs import check_output_file
    from fuseline.engine.registry import registry
    from fuseline.tools.golden.files import Outcome, golden_files, run_file
    from fuseline.tools.junit import Check, write_junit
    from fuseline.tools.progress import activity

    if junit is not None:
        check_output_file(junit, beside=(path, *(plugin or ())))
    for file in plugin or ():
        registry.load_plugin(file)
    outcomes: list[Outcome] = []
    with activity(quiet=as_json, lines=False) as tell:
        for file in golden_files(path):
            tell(file.name)
            outcomes.extend(run_file(file, rewrite=rewrite))
    if junit is not None:
        checks = [Check(o.file.stem, o.case, o.seconds, o.failure) for o in outcomes]
        write_junit(junit, "golden files", checks)
    failed = [o for o in outcomes if o.failure]
    if as_json:
        print_json(
            [
                {"file": str(o.file), "case": o.case, "failure": o.failure or None, "updated": o.updated}
                for o in outcomes
            ]
        )
    else:
        for o in outcomes:
            word = "FAILED" if o.failure else "updated" if o.updated else "ok"
            console.print(f"{word:8}{o.file.name} {o.case}")
            if o.failure:
                console.print("\n".join(f"    {line}" for line in o.failure.splitlines()))
        console.print(f"{counted(len(outcomes), 'case')}, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)
