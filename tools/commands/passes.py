"""`fuseline passes list` and `fuseline passes show`: the catalogue, made from the passes' declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fuseline.tools.commands.options import Json, Plugins, passes_like
from fuseline.tools.console import console, print_json

if TYPE_CHECKING:
    from fuseline.engine.pass_ import Pass

__all__ = ["list_command", "show_command"]


def list_command(
    text: Annotated[
        str, typer.Argument(help="Only passes whose name or description holds this.", show_default=False)
    ] = "",
    phase: Annotated[
        str | None, typer.Option(help="Only of this phase: any, inference, pre-gradient, post-gradient.")
    ] = None,
    folder: Annotated[
        str | None, typer.Option(help="Only of this folder: cleanup, folding, fusion, training, …")
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List the passes, and the ready pipelines."""
    from rich.table import Table

    from fuseline.engine.pipeline import Pipeline, ready_pipelines
    from fuseline.engine.registry import registry
    from fuseline.tools.catalogue import describe

    for path in plugin or ():
        registry.load_plugin(path)
    passes = [p for p in registry if _fits(p, text, phase, folder)]
    # Who looks for some passes does not ask for pipelines.
    chosen = {} if phase or folder else {n: p for n, p in ready_pipelines().items() if text in n}
    pipelines = {name: Pipeline.from_yaml(path) for name, path in sorted(chosen.items())}
    if as_json:
        ready = {n: {"description": p.description, "text": str(p)} for n, p in pipelines.items()}
        print_json({"passes": [describe(p) for p in passes], "pipelines": ready})
        return
    if not passes and not pipelines:
        console.print("no pass fits")
    if passes:
        table = Table("pass", "phase", "before → after", title="passes", title_justify="left")
        for p in passes:
            table.add_row(p.name, p.phase, p.summary())
        console.print(table)
    if pipelines:
        table = Table("pipeline", "description", title="ready pipelines", title_justify="left")
        for name, pipeline in pipelines.items():
            table.add_row(name, pipeline.description)
        console.print(table)


def _fits(pass_: type[Pass], text: str, phase: str | None, folder: str | None) -> bool:
    from fuseline.engine.errors import FuselineError, did_you_mean
    from fuseline.engine.registry import registry

    phases = sorted({p.phase for p in registry})
    if phase is not None and phase not in phases:
        hint = did_you_mean(phase, phases) or f"the phases are {', '.join(phases)}"
        raise FuselineError(f"there is no phase {phase!r}", hint=hint)
    folders = sorted({_folder(p) for p in registry})
    if folder is not None and folder not in folders:
        hint = did_you_mean(folder, folders) or f"the folders are {', '.join(folders)}"
        raise FuselineError(f"there is no folder {folder!r} of passes", hint=hint)
    held = text.lower() in f"{pass_.name} {pass_.summary()} {pass_.__doc__}".lower()
    return held and phase in (None, pass_.phase) and folder in (None, _folder(pass_))


def _folder(pass_: type[Pass]) -> str:
    """`fusion` for a pass of `fuseline.passes.fusion.…`; `plugin` for one of a user's file."""
    parts = pass_.__module__.split(".")
    return parts[2] if parts[:2] == ["fuseline", "passes"] else "plugin"


def show_command(
    name: Annotated[str, typer.Argument(autocompletion=passes_like, help="A pass, or a ready pipeline.")],
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Show a pass with its options, phase and provider, or a ready pipeline's YAML."""
    from rich.text import Text

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
    console.print(Text.assemble((described["name"], "bold"), f"  ({described['provider']})"))
    console.print(described["doc"])
    for key in ("phase", "requires", "forbids", "ensures", "invalidates", "counterpart"):
        if described[key]:
            value = described[key]
            console.print(f"{key}: {', '.join(value) if isinstance(value, list) else value}")
    for option in described["options"]:
        kind = " or ".join(map(str, option["choices"])) or option["type"]
        text = f"  {option['help']}" if option["help"] else ""
        console.print(f"option {option['name']}: {kind} = {option['default']!r}{text}")
