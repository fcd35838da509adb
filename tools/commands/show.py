"""`fuseline show`: a model as text, whole or in part."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fuseline.tools.commands.options import Json
from fuseline.tools.console import print_json

__all__ = ["show_model_command"]


def show_model_command(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    module: Annotated[
        str | None, typer.Option(help="Only this torch module, such as encoder.layer.0.")
    ] = None,
    around: Annotated[str | None, typer.Option(help="Only the neighbourhood of this node or value.")] = None,
    hops: Annotated[int, typer.Option(min=0, help="How far the neighbourhood reaches.")] = 2,
    as_json: Json = False,
) -> None:
    """Print a model: one line a node, with types, attributes and small constants."""
    from fuseline.engine.diff.snapshot import Snapshot
    from fuseline.engine.errors import FuselineError
    from fuseline.engine.graph_json import model_dict, node_dict
    from fuseline.engine.graph_parts import nodes_around, nodes_of_module
    from fuseline.engine.graph_text import graph_text, nodes_text
    from fuseline.engine.model import Model

    if module is not None and around is not None:
        raise FuselineError("--module and --around are two ways to choose", hint="give one of them")
    snapshot = Snapshot.of(Model.load(model))
    if module is None and around is None:
        print_json(model_dict(snapshot)) if as_json else sys.stdout.write(graph_text(snapshot))
        return
    nodes = (
        nodes_of_module(snapshot, module) if module is not None else nodes_around(snapshot, str(around), hops)
    )
    if as_json:
        print_json({"nodes": [node_dict(node) for node in nodes]})
    else:
        sys.stdout.write(nodes_text(snapshot, nodes))
