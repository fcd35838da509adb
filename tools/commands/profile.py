"""`fuseline profile`: time and memory of a run by operator and by torch module, and which pass could help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fuseline.tools.commands.options import Batch, Inputs, Json, Seq, Sizes, given_sizes
from fuseline.tools.console import console, print_json

if TYPE_CHECKING:
    from fuseline.engine.model import Model
    from fuseline.tools.measuring.hints import Hint
    from fuseline.tools.measuring.profile import Profile

__all__ = ["profile_command"]


def profile_command(
    model: Annotated[
        Path, typer.Argument(help="An .onnx file (inference, or a training step), or a profile (.json).")
    ],
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with another .onnx file or profile.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Keep the profile (.json).")
    ] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a flame chart by module.")] = None,
    batch: Batch = None,
    seq: Seq = None,
    size: Sizes = None,
    inputs: Inputs = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs that count, after three that do not.")] = 20,
    threads: Annotated[int, typer.Option(min=1, help="Threads of ONNX Runtime.")] = 2,
    top: Annotated[int, typer.Option(min=1, help="Rows of each table.")] = 12,
    hint: Annotated[bool, typer.Option("--hints/--no-hints", help="Say which pass could help.")] = True,
    as_json: Json = False,
) -> None:
    """Show where the time of a run goes, by operator and by torch module.

    ONNX Runtime's profiler measures each node; the times are medians over the runs. What the runtime fused
    by itself counts where its result was made in the file.
    """
    from fuseline.engine.files import write_text
    from fuseline.engine.outputs import check_output_file
    from fuseline.tools.measuring.flame import flame
    from fuseline.tools.measuring.hints import hints
    from fuseline.tools.progress import activity

    if output is not None:
        check_output_file(output, beside=(model, against, inputs))
    if svg is not None:
        check_output_file(svg, beside=(model, against, inputs, output))
    sizes = given_sizes(batch, seq, size)
    with activity(quiet=as_json) as tell:
        tell(f"running {model.name}")
        profile, graph = _profile(model, sizes, inputs, runs, threads)
        other = None
        if against is not None:
            tell(f"running {against.name}")
            other, _ = _profile(against, sizes, inputs, runs, threads)
        found: list[Hint] = []
        if hint and graph is not None:
            tell("looking for passes that could help")
            found = hints(profile, graph)
    if output is not None:
        write_text(output, json.dumps(profile.to_json(), indent=1))
    if svg is not None:
        write_text(svg, flame(profile))
    if as_json:
        print_json(_as_json(profile, other, found))
        return
    _print(profile, top) if other is None else _print_difference(profile, other, top)
    for line in found:
        console.print(f"hint: {line.name} {line.text}: {100 * line.share:.1f} % of the time")
    if hint and graph is not None and not found:
        console.print("no ready pass would touch what takes time here")
    for path in filter(None, (output, svg)):
        console.print(f"wrote {path}")


def _profile(
    path: Path, sizes: list[str], inputs: Path | None, runs: int, threads: int
) -> tuple[Profile, Model | None]:
    """A kept profile, or a new one with the graph it is of."""
    from fuseline.engine.model import Model
    from fuseline.kernels.records import register_records
    from fuseline.tools.measuring.profile import read_profile, record_profile
    from fuseline.tools.measuring.subject import inputs_for

    if path.suffix == ".json":
        return read_profile(path), None
    register_records()  # native operators are known to a session by them
    graph = Model.load(path)
    feeds = inputs_for(graph, sizes, inputs)
    return record_profile(graph, feeds, name=path.name, runs=runs, threads=threads), graph


def _groups(profile: Profile) -> dict[str, dict[str, tuple[float, int, int]]]:
    return {"operator": profile.by(lambda n: n.op), "module": profile.by(lambda n: n.place or "(none)")}


def _as_json(profile: Profile, other: Profile | None, found: list[Hint]) -> dict[str, Any]:
    def grouped(one: Profile) -> dict[str, Any]:
        return {
            f"by_{kind}": {
                key: {"seconds": seconds, "bytes": made, "nodes": count}
                for key, (seconds, made, count) in rows.items()
            }
            for kind, rows in _groups(one).items()
        }

    return {
        **profile.to_json(),
        **grouped(profile),
        "hints": [line.to_json() for line in found],
        "against": {**other.to_json(), **grouped(other)} if other is not None else None,
    }


def _print(profile: Profile, top: int) -> None:
    from rich.table import Table

    console.print(
        f"{profile.model}: {profile.seconds * 1e3:.2f} ms a run (median of {profile.runs}, profiled)",
    )
    whole = sum(node.seconds for node in profile.nodes) or 1.0
    for kind, rows in _groups(profile).items():
        table = Table(kind, "ms", "%", "made MB", "nodes", title_justify="left")
        table.columns[0].overflow = "fold"
        for key, (seconds, made, count) in list(rows.items())[:top]:
            share = f"{100 * seconds / whole:.1f}"
            table.add_row(key, f"{seconds * 1e3:.3f}", share, f"{made / 1e6:.2f}", str(count))
        console.print(table)
        if len(rows) > top:
            console.print(f"{len(rows) - top} more; --top shows them")


def _print_difference(profile: Profile, other: Profile, top: int) -> None:
    from rich.table import Table

    console.print(
        f"{profile.model}: {profile.seconds * 1e3:.2f} ms a run; {other.model}: {other.seconds * 1e3:.2f} ms",
    )
    theirs = _groups(other)
    for kind, rows in _groups(profile).items():
        table = Table(kind, "ms", "the other's ms", "difference", "nodes", title_justify="left")
        table.columns[0].overflow = "fold"
        both = {
            key: (rows.get(key, (0.0, 0, 0)), theirs[kind].get(key, (0.0, 0, 0)))
            for key in {**rows, **theirs[kind]}
        }
        ordered = sorted(both.items(), key=lambda item: -abs(item[1][0][0] - item[1][1][0]))
        for key, (here, there) in ordered[:top]:
            table.add_row(
                key,
                f"{here[0] * 1e3:.3f}",
                f"{there[0] * 1e3:.3f}",
                f"{(here[0] - there[0]) * 1e3:+.3f}",
                f"{here[2]} / {there[2]}",
            )
        console.print(table)
    console.print("taken one after the other: `fuseline bench` tells small differences from chance")
