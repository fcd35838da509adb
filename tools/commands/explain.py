"""`fuseline passes explain`: where a fusion matches, and where it nearly does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fuseline.tools.commands.options import Json, Plugins, passes_like
from fuseline.tools.console import console

if TYPE_CHECKING:
    from fuseline.engine.model import Model
    from fuseline.tools.progress import Activity

__all__ = ["explain_command"]


def explain_command(
    name: Annotated[str, typer.Argument(autocompletion=passes_like, help="The fusion to explain.")],
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    pipeline: Annotated[
        str | None, typer.Option(help="First run the passes that stand before the fusion in this pipeline.")
    ] = None,
    plugin: Plugins = None,
    at_most: Annotated[int, typer.Option(help="How many near misses to show.")] = 10,
    as_json: Json = False,
) -> None:
    """Show where a fusion matches, and its nearest misses: the node, what was found, what was expected."""
    from fuseline.engine.errors import FuselineError
    from fuseline.engine.model import Model
    from fuseline.engine.patterns import Fusion
    from fuseline.engine.patterns.explain import explain
    from fuseline.engine.registry import registry
    from fuseline.tools.progress import activity

    for path in plugin or ():
        registry.load_plugin(path)
    chosen = registry[name]
    if not issubclass(chosen, Fusion):
        raise FuselineError(f"{name!r} is not a fusion, so it has no pattern to explain")
    with activity(quiet=as_json, lines=False) as tell:
        tell(f"reading {model.name}")
        loaded = Model.load(model)
        if pipeline is not None:
            loaded = _advance(loaded, pipeline, name, tell)
        tell(f"looking for {name}")
        explanation = explain(chosen(), loaded, at_most=at_most, any_root=True)
    console.print(explanation.to_json() if as_json else str(explanation))


def _advance(model: Model, text: str, name: str, tell: Activity) -> Model:
    """The model as the fusion meets it in the pipeline: after every pass in front of its first use."""
    from fuseline.engine.errors import PipelineError, did_you_mean
    from fuseline.engine.pipeline import Pipeline
    from fuseline.tools.progress import PassProgress

    passes = list(Pipeline.resolve(text).passes())
    names = [p.name for p in passes]
    if name not in names:
        raise PipelineError(f"the pipeline has no pass {name!r}", hint=did_you_mean(name, names))
    before = Pipeline.of(*passes[: names.index(name)])
    return before.run(model, observers=[PassProgress(tell)], in_place=True).model
