"""`fuseline bisect`: the first pass, then the single rewrite, that breaks a model's results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from fuseline.engine.plurals import counted
from fuseline.tools.commands.options import Json, PipelineText, Plugins
from fuseline.tools.console import console, print_json

if TYPE_CHECKING:
    from fuseline.engine.bisect import Culprit
    from fuseline.engine.reproducer import Reproducer

__all__ = ["bisect_command"]


def bisect_command(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    pipeline: PipelineText = "inference",
    plugin: Plugins = None,
    inputs: Annotated[
        Path | None, typer.Option(help="Run on these inputs (.npz) instead of made ones.")
    ] = None,
    verify: Annotated[str, typer.Option(help="What must not change: outputs or gradients.")] = "outputs",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write a reproducer into this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the pass and the single rewrite that break a model. Exit code 0: nothing breaks, 1: found."""
    from fuseline.engine.bisect import bisect
    from fuseline.engine.errors import FuselineError
    from fuseline.engine.inputs import load_npz
    from fuseline.engine.model import Model
    from fuseline.engine.pipeline import Pipeline
    from fuseline.engine.registry import registry
    from fuseline.engine.reproducer import prepare_folder, write_reproducer
    from fuseline.engine.verification import Verifier

    if verify not in ("outputs", "gradients"):
        raise FuselineError(f"--verify takes 'outputs' or 'gradients', not {verify!r}")
    if output is not None:
        prepare_folder(output, plugin or (), read=(model, inputs))
    for path in plugin or ():
        registry.load_plugin(path)
    chosen = Pipeline.resolve(pipeline)
    loaded = Model.load(model)
    quantity = cast(Literal["outputs", "gradients"], verify)
    verifier = Verifier(loaded, quantity, inputs=load_npz(inputs, loaded) if inputs else None)
    culprit = bisect(loaded, chosen, verifier, tell=_quiet if as_json else _tell)
    if culprit is None:
        print_json({"found": False}) if as_json else console.print(f"nothing breaks the {verify}")
        return
    written = write_reproducer(output, culprit, verifier, plugins=plugin or ()) if output else None
    print_json(_summary(culprit, written)) if as_json else _report(culprit, written)
    raise typer.Exit(1)


def _tell(message: str) -> None:
    console.print(message, style="dim")


def _quiet(message: str) -> None:
    """JSON alone goes to standard output."""


def _report(culprit: Culprit, written: Reproducer | None) -> None:
    from fuseline.engine.diff.text import rich_text

    step, rewrite = culprit.step, culprit.rewrite
    console.print(f"pass {step.index}: {step.pass_}", style="bold red")
    if rewrite is not None:
        note = f": {rewrite.note}" if rewrite.note else ""
        console.print(f"rewrite {culprit.position} of {culprit.total}, at {rewrite.site}{note}")
    console.print(str(culprit.report))
    console.print(rich_text(culprit.diff), end="", soft_wrap=True)
    if written is not None:
        console.print(f"reproducer ({counted(written.nodes, 'node')}) in {written.folder}; run there:")
        console.print(f"  {written.command}", soft_wrap=True)


def _summary(culprit: Culprit, written: Reproducer | None) -> dict[str, Any]:
    from fuseline.engine.diff.as_json import to_dict

    rewrite = culprit.rewrite
    return {
        "found": True,
        "step": culprit.step.index,
        "pass": str(culprit.step.pass_),
        "rewrite": culprit.position or None,
        "rewrites": culprit.total,
        "site": rewrite.site if rewrite else None,
        "note": rewrite.note if rewrite else None,
        "report": str(culprit.report).splitlines(),
        "diff": to_dict(culprit.diff),
        "reproducer": {"folder": str(written.folder), "command": written.command} if written else None,
    }
