"""`fuseline passes list` and `fuseline passes show`: the catalogue, made from the passes' declarations."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from fuseline.tools.console import console, print_json

__all__ = ["list_command", "show_command"]

Plugin = Annotated[list[Path] | None, typer.Option("--plugin", help="A Python file with passes of your own.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def list_command(plugin: Plugin = None, as_json: Json = False) -> None:
    """List every pass, and the ready pipelines."""
    from rich.table import Table

    from fuseline.engine.pipeline import Pipeline, ready_pipelines
    from fuseline.engine.registry import registry

    for path in plugin or ():
        registry.load_plugin(path)
    pipelines = {name: Pipeline.from_yaml(path) for name, path in sorted(ready_pipelines().items())}
    if as_json:
        print_json(
            {
                "passes": [_describe(p) for p in registry],
                "pipelines": {
                    n: {"description": p.description, "text": str(p)} for n, p in pipelines.items()
                },
            }
        )
        return
    table = Table("pass", "phase", "before → after", title="passes", title_justify="left")
    for p in registry:
        table.add_row(p.name, p.phase, p.summary())
    console.print(table)
    ready = Table("pipeline", "description", title="ready pipelines", title_justify="left")
    for name, pipeline in pipelines.items():
        ready.add_row(name, pipeline.description)
    console.print(ready)


def show_command(
    name: Annotated[str, typer.Argument(help="A pass, or a ready pipeline.")],
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Show a pass with its options, phase and provider, or a ready pipeline's YAML."""
    from fuseline.engine.pipeline import Pipeline, ready_pipelines
    from fuseline.engine.registry import registry

    for path in plugin or ():
        registry.load_plugin(path)
    if name not in registry and name in ready_pipelines():
        pipeline = Pipeline.from_yaml(ready_pipelines()[name])
        print_json({"name": name, "text": str(pipeline)}) if as_json else console.print(pipeline.to_yaml())
        return
    described = _describe(registry[name])
    if as_json:
        print_json(described)
        return
    console.print(f"[bold]{described['name']}[/bold]  ({described['provider']})")
    console.print(described["doc"], markup=False)
    for key in ("phase", "requires", "ensures", "counterpart"):
        if described[key]:
            value = described[key]
            console.print(f"{key}: {', '.join(value) if isinstance(value, list) else value}")
    for option in described["options"]:
        console.print(f"option {option['name']}: {option['type']} = {option['default']!r}", markup=False)


def _describe(pass_: type[Any]) -> dict[str, Any]:
    from fuseline.engine import options
    from fuseline.engine.registry import registry

    types = options.field_types(pass_)
    return {
        "name": pass_.name,
        "summary": pass_.summary(),
        "doc": inspect.getdoc(pass_),
        "phase": pass_.phase,
        "requires": list(pass_.requires),
        "ensures": list(pass_.ensures),
        "counterpart": pass_.counterpart,
        "provider": registry.provider(pass_.name),
        "options": [
            {
                "name": options.kebab(f.name),
                "type": getattr(types[f.name], "__name__", str(types[f.name])),
                "default": None if f.default is dataclasses.MISSING else f.default,
            }
            for f in dataclasses.fields(pass_)
        ],
    }
