"""`fuseline run`: a pipeline over a model, with dumps, verification and expectations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fuseline.engine.plurals import counted
from fuseline.tools.commands.options import Json, Junit, PipelineText, Plugins, passes_like
from fuseline.tools.console import console, print_json

if TYPE_CHECKING:
    from fuseline.engine.errors import FuselineError
    from fuseline.engine.manager import Result
    from fuseline.engine.model import Model
    from fuseline.engine.observer import Observer
    from fuseline.engine.observers import Timing, Verify
    from fuseline.engine.pipeline import Pipeline

__all__ = ["run_command"]


def run_command(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the result goes.")],
    pipeline: PipelineText = "inference",
    dump: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The diff of every pass, and report.html.")
    ] = None,
    verify: Annotated[
        Literal["outputs", "gradients"] | None, typer.Option(help="Check what each pass did.")
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Verify on these inputs (.npz) instead of made ones."),
    ] = None,
    revert_failing: Annotated[
        bool, typer.Option(help="Undo a pass that fails its check, and go on.")
    ] = False,
    stop_after: Annotated[
        str | None, typer.Option(metavar="PASS", autocompletion=passes_like, help="Stop after this pass.")
    ] = None,
    disable: Annotated[
        list[str] | None,
        typer.Option(metavar="PASS", autocompletion=passes_like, help="Leave this pass out (repeatable)."),
    ] = None,
    plugin: Plugins = None,
    expect: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML of operator counts that the result must have, such as `LayerNormalization: 25`; "
            "where one is missed, the nearest misses are shown.",
        ),
    ] = None,
    junit: Junit = None,
    timing: Annotated[
        bool, typer.Option(help="Time and changes of each pass, those that changed something first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a pass pipeline on a model and write the result."""
    from fuseline.engine.errors import FuselineError
    from fuseline.engine.model import Model
    from fuseline.engine.observers import Timing, Verify
    from fuseline.engine.outputs import check_output_file, check_output_folder
    from fuseline.engine.pipeline import Pipeline
    from fuseline.engine.registry import registry
    from fuseline.tools.progress import PassProgress, activity

    read = (pipeline, inputs, expect, *(plugin or ()))
    check_output_file(output, beside=read)  # the model itself may be replaced by the result
    if junit is not None:
        check_output_file(junit, beside=(model, output, *read))
    if dump is not None:
        check_output_folder(dump)
    for path in plugin or ():
        registry.load_plugin(path)
    chosen = Pipeline.resolve(pipeline)
    loaded = Model.load(model)
    times = Timing()
    observers = [
        times,
        *_observers(loaded, chosen, dump, verify, inputs, expect, title=f"{model.name} · {pipeline}"),
    ]
    failure: FuselineError | None = None
    try:
        with activity(quiet=as_json, lines=False) as tell:
            result = chosen.run(
                loaded,
                [*observers, PassProgress(tell)],
                disable=disable or (),
                stop_after=stop_after,
                revert_failing=revert_failing,
                in_place=True,
            )
    except FuselineError as error:
        failure = error
        raise
    finally:
        if junit is not None:
            _write_junit(junit, model, times, observers, failure)
    result.model.save(output)
    checked = next((o for o in observers if isinstance(o, Verify)), None)
    if as_json:
        print_json(_summary(result, output, checked))
        return
    _report(result, output, times if timing else None, checked)


def _write_junit(
    path: Path, model: Path, times: Timing, observers: Sequence[Observer], failure: FuselineError | None
) -> None:
    """One check for each pass that was run, and one for each operator that is counted."""
    from fuseline.engine.observers import Expect, Verify
    from fuseline.tools.junit import Check, write_junit

    checked = next((o for o in observers if isinstance(o, Verify)), None)
    what = f"{checked.quantity} after" if checked is not None else "run"
    checks = []
    for record in times.records:
        idle = "" if record.changes or record.error is not None else "it changed nothing"
        wrong = str(record.error) if record.error is not None else ""
        checks.append(
            Check(f"{what} each pass", f"{record.step.index} {record.name}", record.seconds, wrong, idle)
        )
    expected = next((o for o in observers if isinstance(o, Expect)), None)
    for operator, count in expected.counts.items() if expected is not None else ():
        wrong = "\n".join(expected.missed.get(operator, ())) if expected is not None else ""
        checks.append(Check("expected operators", f"{operator}: {count}", 0.0, wrong))
    if failure is not None and not any(check.failure for check in checks):
        checks.append(Check("the run", "as a whole", 0.0, str(failure)))
    write_junit(path, f"fuseline run {model.name}", checks)


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
    nodes = sum(1 for _ in result.model.nodes())
    return {
        "output": str(output),
        "nodes_before": result.records[0].nodes_before if result.records else nodes,
        "nodes_after": nodes,
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


def _report(result: Result, output: Path, times: Timing | None, checked: Verify | None) -> None:
    from rich.text import Text

    if times is not None:
        console.print(times.table())
    for r in result.reverted:
        why = r.error.message if r.error else ""
        console.print(Text.assemble(("reverted", "yellow"), f" pass {r.step.index} {r.name}: {why}"))
    for note in checked.notes if checked else ():
        console.print(f"note: {note}", soft_wrap=True)
    summary = _summary(result, output, checked)
    sets = f"{counted(checked.sets, 'set')} of inputs" if checked else ""
    verified = f", {checked.quantity} verified on {sets}" if checked else ""
    console.print(
        f"{summary['nodes_before']} → {counted(summary['nodes_after'], 'node')} in "
        f"{counted(len(result.records), 'pass')}, {counted(result.changes, 'change')}{verified}; "
        f"wrote {output}",
    )
