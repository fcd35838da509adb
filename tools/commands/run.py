"""`fuseline run`: a pipeline over a model, with dumps, verification and expectations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fuseline.tools.console import console, print_json

if TYPE_CHECKING:
    from fuseline.engine.manager import Result
    from fuseline.engine.model import Model
    from fuseline.engine.observer import Observer
    from fuseline.engine.observers import Verify
    from fuseline.engine.pipeline import Pipeline

__all__ = ["run_command"]


def run_command(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the result goes.")],
    pipeline: Annotated[
        str, typer.Option(help="A ready pipeline, a YAML file, or pipeline text.")
    ] = "inference",
    dump: Annotated[Path | None, typer.Option(help="Folder for per-pass diffs (text and JSON).")] = None,
    verify: Annotated[
        Literal["outputs", "gradients"] | None, typer.Option(help="Check what each pass did.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="Verify on these inputs (.npz) instead of made ones.")
    ] = None,
    revert_failing: Annotated[
        bool, typer.Option(help="Undo a pass that fails its check, and go on.")
    ] = False,
    stop_after: Annotated[str | None, typer.Option(help="Stop after this pass.")] = None,
    disable: Annotated[list[str] | None, typer.Option(help="Leave this pass out (repeatable).")] = None,
    plugin: Annotated[list[Path] | None, typer.Option(help="A Python file with passes of your own.")] = None,
    expect: Annotated[Path | None, typer.Option(help="YAML of operator counts the result must have.")] = None,
    timing: Annotated[bool, typer.Option(help="Show time and changes per pass.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable summary.")] = False,
) -> None:
    """Run a pass pipeline on a model and write the result."""
    from fuseline.engine.model import Model
    from fuseline.engine.observers import Verify
    from fuseline.engine.outputs import check_output_file, check_output_folder
    from fuseline.engine.pipeline import Pipeline
    from fuseline.engine.registry import registry

    check_output_file(output)
    if dump is not None:
        check_output_folder(dump)
    for path in plugin or ():
        registry.load_plugin(path)
    chosen = Pipeline.resolve(pipeline)
    loaded = Model.load(model)
    observers = _observers(loaded, chosen, dump, verify, inputs, expect, title=f"{model.name} · {pipeline}")
    result = chosen.run(
        loaded,
        observers,
        disable=disable or (),
        stop_after=stop_after,
        revert_failing=revert_failing,
        in_place=True,
    )
    result.model.save(output)
    checked = next((o for o in observers if isinstance(o, Verify)), None)
    if as_json:
        print_json(_summary(result, output, checked))
        return
    _report(result, output, timing, checked)


def _observers(
    model: Model,
    pipeline: Pipeline,
    dump: Path | None,
    verify: Literal["outputs", "gradients"] | None,
    inputs: Path | None,
    expect: Path | None,
    *,
    title: str,
) -> list[Observer]:
    from fuseline.engine.inputs import load_npz
    from fuseline.engine.observers import DumpDiffs, Expect, Verify, load_expectations

    observers: list[Observer] = []
    if dump is not None:
        observers.append(DumpDiffs(dump, title=title))
    if verify is not None:
        observers.append(Verify(verify, inputs=load_npz(inputs, model) if inputs else None))
    expected = {**pipeline.expect, **(load_expectations(expect) if expect else {})}
    if expected:
        observers.append(Expect(expected))
    return observers


def _summary(result: Result, output: Path, checked: Verify | None) -> dict[str, Any]:
    return {
        "output": str(output),
        "nodes_before": result.records[0].nodes_before if result.records else 0,
        "nodes_after": result.records[-1].nodes_after if result.records else 0,
        "changes": result.changes,
        "passes": [
            {
                "index": r.step.index,
                "pass": str(r.step.pass_),
                "changes": r.changes,
                "seconds": round(r.seconds, 6),
                "nodes": r.nodes_after,
                "statistics": r.statistics,
                "reverted": r.reverted,
                "error": str(r.error) if r.error else None,
            }
            for r in result.records
        ],
        "verified": {"quantity": checked.quantity, "sets": checked.sets, "notes": checked.notes}
        if checked
        else None,
    }


def _report(result: Result, output: Path, timing: bool, checked: Verify | None) -> None:
    from rich.table import Table

    if timing:
        table = Table(
            "#", "pass", "changes", "nodes", "ms", "statistics", title="passes", title_justify="left"
        )
        for r in result.records:
            statistics = ", ".join(f"{k} {v}" for k, v in r.statistics.items())
            changes = "reverted" if r.reverted else str(r.changes)
            table.add_row(
                str(r.step.index), r.name, changes, str(r.nodes_after), f"{r.seconds * 1e3:.1f}", statistics
            )
        console.print(table)
    for r in result.reverted:
        console.print(f"[yellow]reverted[/yellow] pass {r.step.index} {r.name}: {r.error}")
    for note in checked.notes if checked else ():
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    summary = _summary(result, output, checked)
    verified = f", {checked.quantity} verified on {checked.sets} sets of inputs" if checked else ""
    console.print(
        f"{summary['nodes_before']} → {summary['nodes_after']} nodes in {len(result.records)} passes, "
        f"{result.changes} changes{verified}; wrote {output}"
    )
