"""`fuseline export`: a torch or transformers model to ONNX, checked against torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fuseline.engine.plurals import counted
from fuseline.tools.console import console, print_json

if TYPE_CHECKING:
    from fuseline.engine.model import Model
    from fuseline.exporters.context import Progress
    from fuseline.exporters.sources import Source
    from fuseline.exporters.verify import CheckReport

__all__ = ["export_command"]

_DOING = {
    "load": "loading the model",
    "trace": "tracing with torch.export",
    "translate": "translating to ONNX",
    "name": "naming parameters and axes",
    "check": "checking against torch",
    "gradients": "differentiating, and checking the gradients against torch",
}


def export_command(
    source: Annotated[
        str, typer.Argument(help="A model folder, a config.json, module:factory, or an .onnx file.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the graph goes (.onnx).")],
    task: Annotated[str | None, typer.Option(help="E.g. text-classification; guessed when left out.")] = None,
    train: Annotated[
        bool, typer.Option(help="With labels, loss, and dropout that can be switched off.")
    ] = False,
    with_past: Annotated[
        bool, typer.Option(help="For generation: past keys and values; OUTPUT is then a folder.")
    ] = False,
    opset: Annotated[int, typer.Option(help="18 to 21.")] = 18,
    attention: Annotated[
        str | None, typer.Option(help="eager or sdpa; the model's own when left out.")
    ] = None,
    dynamic: Annotated[bool, typer.Option(help="Leave batch, sequence and the like free.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of random weights, when SOURCE is a config.")] = 0,
    check: Annotated[bool, typer.Option(help="Run the graph and torch on several shapes.")] = True,
    gradients: Annotated[
        bool, typer.Option(help="With --train, check every gradient too; for a large model leave it out.")
    ] = True,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A Python file with model families (repeatable)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable facts of the export.")] = False,
) -> None:
    """Export a model to ONNX and check it against torch."""
    from fuseline.engine.errors import FuselineError, GateFailed
    from fuseline.engine.outputs import check_output_file, check_output_folder

    # Before the exporters are imported, which takes longer than everything else that can be refused.
    check_output_folder(output) if with_past else check_output_file(output, beside=plugin or ())
    from fuseline.exporters import export
    from fuseline.exporters.context import Clock
    from fuseline.exporters.families import load_families
    from fuseline.exporters.generation import export_generator
    from fuseline.exporters.sources import Source, resolve

    if train and with_past:
        raise FuselineError("--train and --with-past exclude each other", hint="export twice")
    for path in plugin or ():
        load_families(path)
    common: dict[str, Any] = {"task": task, "attention": attention, "seed": seed}
    with _progress(quiet=as_json) as progress:
        checked: dict[str, Any] = {"opset": opset, "check": check, "progress": progress}
        if with_past:
            generator = export_generator(source, **common, **checked)
            generator.save(output)
            made = {"decoder": generator.decoder}
            made |= {"encoder": generator.encoder} if generator.encoder else {}
        else:
            found = source if source.endswith(".onnx") else resolve(source, **common)
            model = export(found, **checked, train=train, dynamic=dynamic, attention=attention)
            model.save(output)
            made = {output.name: model}
            if train and check and gradients and isinstance(found, Source):
                clock = Clock(progress)
                with clock.phase("gradients"):
                    rows = _gradients(model, found, dynamic)
                origin = model.facts.origin
                model.facts.origin = replace(
                    origin, gradient_check=tuple(rows), timings={**origin.timings, **clock.seconds}
                )
    if as_json:
        print_json({"output": str(output), "graphs": {name: m.facts.to_json() for name, m in made.items()}})
    else:
        for name, model in made.items():
            _report(name, model)
        console.print(f"wrote {output}")
    if not all(_gradients_hold(model) for model in made.values()):
        raise GateFailed("the gradients of the graph are not torch's", hint="see the table above")


def _gradients(model: Model, source: Source, dynamic: bool) -> list[dict[str, Any]]:
    """Every gradient against torch's, by the ready training pipeline."""
    from fuseline.exporters.planning import make_plan
    from fuseline.tools.gradient_check import gradient_report

    return gradient_report(model, make_plan(source, train=True, dynamic=dynamic)).to_json()


def _gradients_hold(model: Model) -> bool:
    from fuseline.exporters.verify import CheckReport

    return CheckReport.from_json(model.facts.origin.gradient_check).ok


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress]:
    """A spinner on a terminal, one line per phase in a pipe."""
    if quiet:
        yield lambda phase: None
    elif console.is_terminal:
        with console.status("starting") as status:
            yield lambda phase: status.update(_DOING.get(phase, phase))
    else:
        yield lambda phase: console.print(_DOING.get(phase, phase))


def _report(name: str, model: Model) -> None:
    from rich.text import Text

    from fuseline.exporters.verify import CheckReport

    origin = model.facts.origin
    trained = sum(1 for p in model.parameters if p.trainable)
    tied = sum(1 for p in model.parameters if p.value) - len({p.value for p in model.parameters if p.value})
    facts = (
        f": {origin.architecture or 'an ONNX file'}, "
        f"{counted(len(model.graph), 'node')}, {len(model.parameters)} parameters and buffers "
        f"({trained} trainable, {tied} tied names), opset {model.opset()}"
    )
    console.print(Text.assemble((name, "bold"), facts))
    if origin.check:
        console.print(_check_table("outputs against torch", CheckReport.from_json(origin.check)))
    if origin.gradient_check:
        report = CheckReport.from_json(origin.gradient_check)
        console.print(_check_table("gradients against torch, the worst of each shape", report))
    for note in origin.notes:
        console.print(Text.assemble(("note", "yellow"), f" {note}"))
    if origin.timings:
        spent = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in origin.timings.items())
        console.print(f"seconds: {spent}")


def _check_table(title: str, report: CheckReport) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table("shape", "output", "difference", "tolerance", "", title=title, title_justify="left")
    for row in report.checks:
        verdict = Text("ok", "green") if row.ok else Text("different", "red")
        table.add_row(row.shape, row.output, f"{row.difference:.1e}", f"{row.tolerance:.0e}", verdict)
    return table
