"""`fuseline bench`: torch, stock ONNX Runtime and the transformed graph by turns; what each pass bought."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fuseline.tools.commands.options import Batch, Inputs, Json, Plugins, Seq, Sizes, given_sizes
from fuseline.tools.console import console, print_json

if TYPE_CHECKING:
    from fuseline.tools.measuring.ablation import Ablation
    from fuseline.tools.measuring.comparison import Comparison
    from fuseline.tools.measuring.subject import Subject

__all__ = ["bench_command"]


def bench_command(
    source: Annotated[
        str, typer.Argument(help="An .onnx file, a model folder, a config.json, or module:factory.")
    ],
    train: Annotated[bool, typer.Option(help="Training steps (with AdamW); else plain runs.")] = False,
    task: Annotated[str | None, typer.Option(help="E.g. text-classification; guessed when left out.")] = None,
    pipeline: Annotated[
        str | None, typer.Option(help="What is measured as fuseline; else inference or training.")
    ] = None,
    batch: Batch = None,
    seq: Seq = None,
    size: Sizes = None,
    inputs: Inputs = None,
    contender: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Besides fuseline, only this one (repeatable); all if left out."),
    ] = None,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="What each pass bought, instead of the contenders.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="PASS", help="With --ablate, only this pass (repeatable).")
    ] = None,
    rounds: Annotated[int, typer.Option(min=6, help="Rounds in which each contender has its turn.")] = 15,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every contender.")] = 2,
    memory: Annotated[bool, typer.Option(help="Measure memory too, each in a process of its own.")] = True,
    check: Annotated[bool, typer.Option(help="Refuse to compare different results.")] = True,
    svg: Annotated[Path | None, typer.Option(help="Write a bar chart to this file.")] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Compare speed and memory with torch and stock ONNX Runtime, or show what each pass bought.

    All contenders take turns in one process. A time comes with the interval that encloses its median with
    95 % confidence, and so does a ratio; one whose interval is wider than a fifth of it is not shown.
    """
    from fuseline.engine.outputs import check_output_file
    from fuseline.engine.registry import registry
    from fuseline.tools.measuring.subject import Subject

    if svg is not None:
        check_output_file(svg, beside=(source, inputs, *(plugin or ())))
    for path in plugin or ():
        registry.load_plugin(path)
    with tempfile.TemporaryDirectory(prefix="fuseline-bench-") as folder:
        subject = Subject(source, folder, train, task, tuple(given_sizes(batch, seq, size)), threads)
        if ablate:
            _ablate(subject, pipeline, inputs, only or [], rounds, svg, as_json)
        else:
            _compare(subject, pipeline, inputs, contender or [], rounds, memory, check, svg, as_json)


def _compare(
    subject: Subject,
    text: str | None,
    inputs: Path | None,
    wanted: list[str],
    rounds: int,
    memory: bool,
    check: bool,
    svg: Path | None,
    as_json: bool,
) -> None:
    from fuseline.engine.errors import FuselineError, did_you_mean
    from fuseline.engine.files import write_text
    from fuseline.tools.measuring.comparison import compare_contenders
    from fuseline.tools.measuring.contenders import OURS, available
    from fuseline.tools.progress import activity

    with activity(quiet=as_json) as tell:
        tell("exporting" if not subject.is_graph else "loading")
        plain = subject.prepare(inputs)
        names = available(subject)
        for name in wanted:
            if name not in names:
                raise FuselineError(
                    f"there is no contender {name!r}; there are {', '.join(names)}",
                    hint=did_you_mean(name, names),
                )
        tell("transforming")
        subject.keep(OURS, subject.pipeline(text).run(plain).model)
        chosen = [name for name in names if not wanted or name == OURS or name in wanted]
        found = compare_contenders(subject, chosen, rounds=rounds, memory=memory, check=check, tell=tell)
    if svg is not None:
        write_text(svg, _chart(found, subject))
    if as_json:
        print_json({**_about(subject, rounds), **found.to_json()})
        return
    _print_comparison(found, subject, rounds)
    if svg is not None:
        console.print(f"wrote {svg}")


def _ablate(
    subject: Subject,
    text: str | None,
    inputs: Path | None,
    only: list[str],
    rounds: int,
    svg: Path | None,
    as_json: bool,
) -> None:
    from fuseline.engine.errors import PipelineError, did_you_mean
    from fuseline.engine.files import write_text
    from fuseline.tools.measuring.ablation import ablate
    from fuseline.tools.progress import activity

    pipeline = subject.pipeline(text)
    known = [p.name for p in pipeline.passes()]
    for name in only:
        if name not in known:
            raise PipelineError(f"the pipeline has no pass {name!r}", hint=did_you_mean(name, known))
    with activity(quiet=as_json) as tell:
        tell("exporting" if not subject.is_graph else "loading")
        plain = subject.prepare(inputs)
        tell("transforming")
        rows = ablate(subject, pipeline, plain, only, rounds=rounds, tell=tell)
    if svg is not None:
        write_text(svg, _ablation_chart(rows, subject))
    if as_json:
        print_json({**_about(subject, rounds), "passes": [row.to_json() for row in rows]})
        return
    _print_ablation(rows, subject)
    if svg is not None:
        console.print(f"wrote {svg}")


def _about(subject: Subject, rounds: int) -> dict[str, Any]:
    shapes = {name: list(array.shape) for name, array in subject.batch().items()}
    what = "training" if subject.train else "inference"
    return {
        "source": subject.source,
        "what": what,
        "inputs": shapes,
        "threads": subject.threads,
        "rounds": rounds,
    }


def _title(subject: Subject) -> str:
    shapes = ", ".join(f"{name} {'×'.join(map(str, a.shape))}" for name, a in subject.batch().items())
    kind = "one training step" if subject.train else "one run"
    return f"{Path(subject.source).name}: {kind} on {shapes}; threads: {subject.threads}"


# -- contenders


def _print_comparison(found: Comparison, subject: Subject, rounds: int) -> None:
    from rich.table import Table

    console.print(_title(subject))
    table = Table("", "ms", "memory MB", "time against fuseline", title_justify="left")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for row in found.rows:
        memory = f"{row.memory / 1e6:.0f}" if row.memory is not None else "–"
        table.add_row(row.name, row.seconds.scaled(1e3).text(), memory, _ratio(row.ratio))
    console.print(table)
    console.print(f"medians of {rounds} rounds in turns, with the bounds that enclose them at 95 %")
    console.print("≈: the bounds enclose 1, so that no difference is shown")
    if any(row.ratio is not None and not row.ratio.meaningful for row in found.rows):
        console.print("too noisy to say: measure more --rounds, or on a quieter machine")
    if any(row.memory is not None for row in found.rows):
        console.print("memory: resident at the peak of a run, less the libraries; a process each")
    for name, reason in found.failed.items():
        console.print(f"{name} could not take part: {reason}")


def _ratio(ratio: Any) -> str:
    if ratio is None:
        return ""
    if not ratio.meaningful:
        return "too noisy to say"
    return f"{'≈ ' if ratio.holds(1.0) else ''}{ratio.text()} ×"


def _chart(found: Comparison, subject: Subject) -> str:
    from fuseline.tools.measuring.bars import Bar, Panel, bars
    from fuseline.tools.measuring.intervals import Interval

    times = [
        Bar(row.name, row.seconds.scaled(1e3), f"{row.seconds.middle * 1e3:.2f} ms", row.name != "fuseline")
        for row in found.rows
    ]
    panels = [Panel("time", times, _title(subject))]
    held = [(row.name, row.memory / 1e6) for row in found.rows if row.memory is not None]
    if held:
        rows = [Bar(n, Interval(mb, mb, mb), f"{mb:.0f} MB", n != "fuseline") for n, mb in held]
        panels.append(Panel("resident memory at the peak of a run", rows))
    return bars(panels)


# -- ablation


def _print_ablation(rows: list[Ablation], subject: Subject) -> None:
    from rich.table import Table

    console.print(_title(subject))
    table = Table(title_justify="left")
    for column in ("without", "changes", "ms more", "time ×", "peak MB", "nodes"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        if row.seconds is not None and row.ratio is not None:
            table.add_row(
                row.name,
                str(row.changes),
                ("≈ " if row.seconds.holds(0.0) else "") + row.seconds.scaled(1e3).text(),
                f"{row.ratio.middle:.3f}" if row.ratio.meaningful else "?",
                f"{row.memory / 1e6:+.1f}",
                f"{row.nodes:+d}",
            )
    console.print(table)
    for row in rows:
        if row.note:
            console.print(f"{row.name}: {row.note}")
    console.print("each row: the graph without that pass against the graph with all, in turns; medians, 95 %")
    console.print("≈: the bounds enclose 0, so that no difference is shown; ?: too noisy to say")
    console.print("peak: how much more a simulated run needs, without what the caller holds")


def _ablation_chart(rows: list[Ablation], subject: Subject) -> str:
    from fuseline.tools.measuring.bars import Bar, Panel, bars
    from fuseline.tools.measuring.intervals import Interval

    times, held = [], []
    for row in rows:
        if row.seconds is not None:
            ms = row.seconds.scaled(1e3)
            times.append(Bar(row.name, ms, f"{ms.middle:+.2f} ms", row.seconds.holds(0.0)))
        mb = row.memory / 1e6
        if abs(mb) >= 0.05:
            held.append(Bar(row.name, Interval(mb, mb, mb), f"{mb:+.1f} MB"))
    panels = [Panel("what each pass bought, in time", times, _title(subject))]
    return bars([*panels, *([Panel("in memory at the peak of a run", held)] if held else [])])
