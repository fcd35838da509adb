"""Options that several commands share, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Batch",
    "Inputs",
    "Json",
    "Junit",
    "PipelineText",
    "Plugins",
    "Seq",
    "Sizes",
    "given_sizes",
    "passes_like",
    "pipelines_like",
]


def passes_like(incomplete: str) -> list[str]:
    """Completion of the name of a pass."""
    from fuseline.engine.registry import registry

    return [p.name for p in registry if p.name.startswith(incomplete)]


def pipelines_like(incomplete: str) -> list[str]:
    """Completion of a ready pipeline or a YAML file."""
    from fuseline.engine.pipeline import ready_pipelines

    files = [str(path) for path in Path().glob("*.y*ml")]
    return [name for name in (*ready_pipelines(), *files) if name.startswith(incomplete)]


PipelineText = Annotated[
    str,
    typer.Option(
        "--pipeline",
        metavar="P",
        autocompletion=pipelines_like,
        help="A ready pipeline, a YAML file, or pipeline text.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file with passes of your own (repeatable)."),
]
Junit = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML, for CI.")]
Batch = Annotated[int | None, typer.Option(min=0, help="The size of the dimension `batch`.")]
Seq = Annotated[int | None, typer.Option(min=0, help="The size of the dimension `sequence`.")]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", metavar="NAME=NUMBER", help="The size of any other dimension (repeatable)."),
]
Inputs = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Run on these inputs (.npz) instead of made ones.")
]


def given_sizes(batch: int | None, seq: int | None, others: list[str] | None) -> list[str]:
    """All sizes as `NAME=NUMBER`."""
    named = {"batch": batch, "sequence": seq}
    return [*(others or ()), *(f"{name}={value}" for name, value in named.items() if value is not None)]
