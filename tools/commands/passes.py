"""`fuseline passes list` and `fuseline passes show`: the catalogue, made from the passes' declarations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    from fuseline.tools.catalogue import describe

    for path in plugin or ():
        registry.load_plugin(path)
    pipelines = {name: Pipeline.from_yaml(path) for name, path in sorted(ready_pipelines().items())}
    if as_json:
        print_json(
            {
                "passes": [describe(p) for p in registry],
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
    from fuseline.tools.catalogue import describe

    for path in plugin or ():
        registry.load_plugin(path)
    if name not in registry and name in ready_pipelines():
        pipeline = Pipeline.from_yaml(ready_pipelines()[name])
        print_json({"name": name, "text": str(pipeline)}) if as_json else console.print(pipeline.to_yaml())
        return
    described = describe(registry[name])
    if as_json:
        print_json(described)
        return
    console.print(f"[bold]{described['name']}[/bold]  ({described['provider']})")
    console.print(described["doc"], markup=False)
    for key in ("phase", "requires", "forbids", "ensures", "invalidates", "counterpart"):
        if described[key]:
            value = described[key]
            console.print(f"{key}: {', '.join(value) if isinstance(value, list) else value}")
    for option in described["options"]:
        kind = " or ".join(map(str, option["choices"])) or option["type"]
        text = f"  {option['help']}" if option["help"] else ""
        console.print(f"option {option['name']}: {kind} = {option['default']!r}{text}", markup=False)
