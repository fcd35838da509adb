"""`fuseline plan`: how much memory a model needs while it runs, who holds it, and what would lower it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fuseline.engine.plurals import counted
from fuseline.tools.commands.options import Batch, Json, Seq, Sizes, given_sizes
from fuseline.tools.console import console, print_json

if TYPE_CHECKING:
    from fuseline.engine.memory import Simulation
    from fuseline.engine.observer import Observer

__all__ = ["plan_command"]

_PICTURES = (".svg", ".html", ".htm")
_MODULES_SHOWN = 12
_NONE = "as it is"
"""The name of the plan that changes nothing."""


def plan_command(
    model: Annotated[Path, typer.Argument(help="An .onnx file: an inference graph, or a training step.")],
    batch: Batch = None,
    seq: Seq = None,
    size: Sizes = None,
    budget: Annotated[
        str | None, typer.Option(help="Name the cheapest plan that fits: 2GB, 500MB, or a fraction.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw the live memory over the run, and memory against time: an .svg or .html."),
    ] = None,
    dump: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="What the memory passes would do: diffs and report.html."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the peak of memory of one run in the order of the graph, by origin and by torch module."""
    from fuseline.engine.errors import FuselineError
    from fuseline.engine.files import write_text
    from fuseline.engine.memory import Simulation, at_sizes
    from fuseline.engine.memory.options import sizes_for
    from fuseline.engine.memory.planning import candidates, curve, parse_budget, within
    from fuseline.engine.model import Model
    from fuseline.engine.outputs import check_output_file, check_output_folder
    from fuseline.kernels.records import register_records
    from fuseline.tools.progress import PassProgress, activity

    if budget is not None:
        parse_budget(budget, 1)  # what is no amount of memory is said at once
    register_records()  # without them the sizes of what native operators make are not known
    if dump is not None:
        check_output_folder(dump)
    if picture is not None:
        check_output_file(picture, beside=[model])
        if picture.suffix.lower() not in _PICTURES:
            raise FuselineError(f"{picture} is neither a drawing nor a page", hint="name it .svg or .html")
    with activity(quiet=as_json, lines=False) as tell:
        tell(f"reading {model.name}")
        loaded = Model.load(model)
        sizes = sizes_for(loaded, given_sizes(batch, seq, size))
        tell("planning")
        found = candidates(loaded, sizes, observers=lambda name: [PassProgress(tell), *_dumping(dump, name)])
        tell("simulating")
        plans = {plan.name: Simulation(at_sizes(plan.model, sizes)) for plan in found}
    described = {
        p.name: _described(plans[p.name]) | {"passes": p.passes, "extra_time": p.extra} for p in found
    }
    best = [plan.name for plan in curve(found)]
    data: dict[str, Any] = {"model": str(model), "sizes": sizes, "plans": described, "curve": best}
    if picture is not None:
        write_text(picture, _drawing(picture, data, plans))
    if budget is not None:
        chosen, data["budget"] = within(found, budget)
        data["chosen"] = chosen.name
    if as_json:
        print_json(data)
    else:
        _print(data, plans, picture)


def _dumping(folder: Path | None, name: str) -> list[Observer]:
    from fuseline.engine.observers import DumpDiffs

    stem = name.replace(", ", "-").replace(" ", "-")
    return [] if folder is None else [DumpDiffs(folder / stem, title=f"memory: {name}")]


def _drawing(file: Path, data: dict[str, Any], plans: dict[str, Simulation]) -> str:
    """Memory against time and the live memory, without a plan and with those worth having, as an SVG; or as a
    page with the tables too."""
    from fuseline.engine.memory.picture import curve_picture, page, picture, stacked

    points = [(name, row["peak"], row["extra_time"]) for name, row in data["plans"].items()]
    shown = [(name, plan) for name, plan in plans.items() if name == _NONE or name in data["curve"]]
    drawings = [curve_picture(points, data["curve"]), picture(shown)]
    if file.suffix.lower() == ".svg":
        return stacked(drawings)
    last = data["curve"][-1]
    tables = {
        "plans (* no other needs less memory and no more time)": _table(data),
        **{
            f"MB at the peak, {name}": _holders_table(data["plans"][name])
            for name in dict.fromkeys((_NONE, last))
        },
    }
    return page(f"memory of {Path(data['model']).name}", drawings, tables)


def _table(data: dict[str, Any]) -> list[list[str]]:
    """Head and rows of the plans."""
    table = [["plan", "peak MB", "as one block MB", "more time", "held mostly as"]]
    for name, row in data["plans"].items():
        mostly = sorted(row["by_origin"].items(), key=lambda item: -item[1])[:3]
        table.append(
            [
                f"{name} *" if name in data["curve"] else name,
                f"{row['peak'] / 1e6:.1f}",
                f"{row['arena']['bytes'] / 1e6:.1f} (+{row['arena']['fragmentation']:.1%})",
                f"{row['extra_time']:.0%}",
                ", ".join(f"{origin} {held / 1e6:.1f}" for origin, held in mostly),
            ]
        )
    return table


def _holders_table(plan: dict[str, Any]) -> list[list[str]]:
    """Head and rows of who holds the peak of a plan: torch modules, and what for."""
    origins = sorted(plan["by_origin"], key=lambda origin: -plan["by_origin"][origin])
    table = [["torch module", "MB", *origins]]
    for module, held in plan["by_module"].items():
        parts = plan["by_module_and_origin"][module]
        cells = [f"{parts[origin] / 1e6:.1f}" if origin in parts else "" for origin in origins]
        table.append([module, f"{held / 1e6:.1f}", *cells])
    return table


def _described(plan: Simulation) -> dict[str, Any]:
    from fuseline.engine.memory.arena import plan_arena

    origins: dict[str, int] = defaultdict(int)
    modules: dict[str, int] = defaultdict(int)
    parts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for holder in plan.holders():
        module = holder.module or "(none)"
        origins[holder.origin] += holder.bytes
        modules[module] += holder.bytes
        parts[module][holder.origin] += holder.bytes
    node = plan.nodes[plan.peak_at] if plan.alive else None
    arena = plan_arena(plan)
    return {
        "peak": plan.peak,
        "at": node.name if node is not None else None,
        "by_origin": dict(origins),
        "by_module": dict(sorted(modules.items(), key=lambda item: -item[1])),
        "by_module_and_origin": {module: dict(row) for module, row in parts.items()},
        "held_by_caller": {str(k): v for k, v in plan.held().items()},
        "unknown": plan.unknown,
        "workspace": plan.workspace,
        "arena": {
            "bytes": arena.size,
            "fragmentation": arena.fragmentation,
            "places": [
                {
                    "value": p.span.name,
                    "offset": p.offset,
                    "bytes": p.span.bytes,
                    "nodes": [p.span.first, p.span.last],
                }
                for p in arena.places
            ],
        },
        "alive": plan.alive,
    }


def _print(data: dict[str, Any], plans: dict[str, Simulation], picture: Path | None) -> None:
    from rich.table import Table

    from fuseline.engine.memory.planning import amount

    sizes = ", ".join(f"{name} {number}" for name, number in data["sizes"].items())
    console.print(f"one run at {sizes or 'fixed sizes'}; what the caller holds is not counted")
    head, *rows = _table(data)
    table = Table(*head, title="memory", title_justify="left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print("* no other plan needs less memory and no more time")
    if "chosen" in data:
        passes = data["plans"][data["chosen"]]["passes"] or "no passes"
        console.print(f"within {amount(data['budget'])}: {data['chosen']} ({passes})")
    first = data["plans"][_NONE]
    head, *rows = _holders_table(first)
    modules = Table(*head, title="MB at the peak, as it is", title_justify="left")
    for row in rows[:_MODULES_SHOWN]:
        modules.add_row(*row)
    console.print(modules)
    held = ", ".join(f"{name} {number / 1e6:.1f} MB" for name, number in first["held_by_caller"].items())
    console.print(f"held by the caller: {held}")
    if first["unknown"]:
        console.print(f"{counted(len(first['unknown']), 'value')} of unknown size taken as nothing")
    if picture is not None:
        console.print(f"wrote {picture}")
