"""`fuseline show`: a model as text, whole or in part."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["show_model_command"]


def show_model_command(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    module: Annotated[
        str | None, typer.Option(help="Only this torch module, such as encoder.layer.0.")
    ] = None,
    around: Annotated[str | None, typer.Option(help="Only the neighbourhood of this node or value.")] = None,
    hops: Annotated[int, typer.Option(min=0, help="How far the neighbourhood reaches.")] = 2,
) -> None:
    """Print a model: one line a node, with types, attributes and small constants."""
    from fuseline.engine.graph_text import around_text, graph_text, module_text
    from fuseline.engine.model import Model

    loaded = Model.load(model)
    if around is not None:
        text = around_text(loaded, around, hops)
    elif module is not None:
        text = module_text(loaded, module)
    else:
        text = graph_text(loaded)
    sys.stdout.write(text)
