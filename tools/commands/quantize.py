"""`fuseline quantize`: a smaller and faster model that keeps its accuracy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fuseline.tools.console import console, print_json

if TYPE_CHECKING:
    from fuseline.tools.quantizer.config import Config
    from fuseline.tools.quantizer.criteria import Criteria
    from fuseline.tools.quantizer.quantize import Outcome
    from fuseline.tools.quantizer.workshop import Progress

__all__ = ["quantize_command"]

_SHOWN = 12


def quantize_command(
    model: Annotated[Path | None, typer.Argument(help="An .onnx file.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where the result goes.")] = None,
    config: Annotated[
        str | None, typer.Option(help="A YAML file, a folder that holds one, or a Hub repository.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="dynamic, static, auto, weight-only, float16 or bfloat16.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="auto, avx2, avx512, avx512_vnni, arm64 or tensorrt.")
    ] = None,
    calibration: Annotated[str | None, typer.Option(help="Inputs to calibrate with (.npz).")] = None,
    evaluation: Annotated[str | None, typer.Option(help="Inputs and labels to judge by (.npz).")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write what changed in behaviour (.html or .json).")
    ] = None,
    slices: Annotated[
        Path | None, typer.Option(help="An .npz of booleans: named parts of the evaluation data.")
    ] = None,
    criterion: Annotated[
        Path | None, typer.Option(help="YAML of limits that the report has to keep, else exit 1.")
    ] = None,
    schema: Annotated[bool, typer.Option(help="Print the JSON schema of the configuration.")] = False,
    dump: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The diff of every pass, and report.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable summary.")] = False,
) -> None:
    """Quantize a model; every node left in float says why."""
    from fuseline.engine.errors import FuselineError, GateFailed
    from fuseline.engine.outputs import check_output_file, check_output_folder
    from fuseline.tools.quantizer.criteria import load_criteria
    from fuseline.tools.quantizer.judge import load_slices
    from fuseline.tools.quantizer.quantize import quantize

    if schema:
        from fuseline.tools.quantizer.schema import schema as make_schema

        print_json(make_schema())
        return
    if model is None or output is None:
        raise FuselineError(
            "a model and -o/--output are needed", hint="fuseline quantize model.onnx -o q.onnx"
        )
    if slices is not None and report is None and criterion is None:
        raise FuselineError("--slices names parts of a report, and none is asked for", hint="add --report")
    # The float model is what the quantized one is judged by, so it must not be replaced either.
    read = (model, config, calibration, evaluation, slices, criterion)
    check_output_file(output, beside=read)
    if report is not None:
        check_output_file(report, beside=(*read, output))
    if dump is not None:
        check_output_folder(dump)
    settings = _settings(config, mode, target, calibration, evaluation)
    # Before anything runs: tuning may take hours.
    limits = load_criteria(criterion) if criterion is not None else None
    parts = load_slices(slices) if slices is not None else None
    tell = (lambda line: None) if as_json else (lambda line: console.print(line))
    outcome = quantize(
        model, output, settings, dump=dump, progress=None if as_json else _progress(), tell=tell
    )
    summary = _summary(outcome, output)
    if report is not None or criterion is not None:
        summary["behaviour"] = _judge(model, output, settings, outcome, report, parts, limits)
    if as_json:
        print_json(summary)
    else:
        _print(outcome, summary, report)
    if outcome.met is False:
        raise GateFailed(
            f"the criterion is not met: {outcome.score:.4f} of {outcome.float_score:.4f} in float",
            hint=f"the best model that was found is in {output}; a larger budget goes on from there",
        )
    failed = summary.get("behaviour", {}).get("failed", [])
    if failed:
        raise GateFailed("the quantized model misses its criteria: " + "; ".join(failed))


def _settings(
    config: str | None, mode: str | None, target: str | None, calibration: str | None, evaluation: str | None
) -> Config:
    """The file's settings, with what the command line says in their place."""
    from fuseline.tools.quantizer.config import Config, load_config

    given: dict[str, Any] = load_config(config).to_dict() if config else {}
    given |= {k: v for k, v in (("mode", mode), ("target", target)) if v is not None}
    if calibration is not None:
        given["calibration"] = {**given.get("calibration", {}), "data": calibration}
    if evaluation is not None:
        known = given.get("accuracy", {"metric": "accuracy"})
        given["accuracy"] = {**known, "data": evaluation}
    return Config.from_dict(given)


def _judge(
    model: Path,
    output: Path,
    settings: Config,
    outcome: Outcome,
    report: Path | None,
    slices: dict[str, Any] | None,
    criteria: Criteria | None,
) -> dict[str, Any]:
    """The behaviour report on the evaluation data, else the calibration data, else random inputs."""
    from fuseline.engine.model import Model
    from fuseline.tools.quantizer.data import batches_of, made_up
    from fuseline.tools.quantizer.judge import judge
    from fuseline.tools.quantizer.report import write_report

    plain = Model.load(model)
    source = (settings.accuracy.data if settings.accuracy else None) or settings.calibration.data
    batches = batches_of(source, plain, batch_size=16) if source else made_up(plain)
    made = judge(
        model,
        output,
        batches,
        config=settings,
        slices=slices,
        criteria=criteria,
        left=outcome.left.products,
    )
    if report is not None:
        write_report(report, made)
    return made


def _progress() -> Progress | None:
    """A line that overwrites itself on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        return None

    def show(phase: str, done: int, total: int) -> None:
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r{phase} {done}/{total}{end}")
        sys.stderr.flush()

    return show


def _summary(outcome: Outcome, output: Path) -> dict[str, Any]:
    return {
        "output": str(output),
        "target": outcome.target,
        "quantized": outcome.left.quantized,
        "left_in_float": outcome.left.products,
        "never_quantized": outcome.left.others,
        "size_ratio": round(outcome.size_ratio, 4),
        "met": outcome.met,
        "float_score": outcome.float_score,
        "score": outcome.score,
        "trials": [{"name": t.name, "score": t.score, "met": t.met} for t in outcome.trials],
    }


def _print(outcome: Outcome, summary: dict[str, Any], report: Path | None) -> None:
    console.print(f"target {outcome.target}")
    left = outcome.left.products
    for name, reason in list(left.items())[:_SHOWN]:
        console.print(f"in float: {name}: {reason}")
    if len(left) > _SHOWN:
        console.print(f"… and {len(left) - _SHOWN} more (--json lists all)")
    others = ", ".join(f"{k} {v}" for k, v in outcome.left.others.items())
    if others:
        console.print(f"no products, so never quantized: {others}")
    score = "" if outcome.score is None else f"; {outcome.score:.4f} ({outcome.float_score:.4f} in float)"
    console.print(
        f"{outcome.left.quantized} nodes quantized, weights {outcome.size_ratio:.2f}× the size{score}; "
        f"wrote {summary['output']}" + (f" and {report}" if report else ""),
    )
