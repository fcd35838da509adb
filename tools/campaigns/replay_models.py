"""The models of a replay, kept in the record as they were before any pass.

Exports of every architecture, with and without loss; third-party files; onnx's own backend cases.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuseline.tools.campaigns.workers import spread

__all__ = ["Source", "keep_all", "sources"]


@dataclass(frozen=True)
class Source:
    """One model to keep: a file, or an architecture with its attention implementation."""

    name: str
    file: Path | None = None
    architecture: str = ""
    attention: str = ""

    def path(self, folder: Path, suffix: str = ".onnx") -> Path:
        return folder / "models" / f"{self.name}{suffix}"

    def kept(self, folder: Path) -> bool:
        return any(self.path(folder, suffix).is_file() for suffix in (".onnx", ".failed"))


def sources() -> Iterator[Source]:
    """Everything that a complete record holds."""
    from fuseline.tools.campaigns import conformance, third_party, zoo

    for path in (*third_party.models(), *third_party.light_models()):
        yield Source(f"third-party/{path.stem}", path)
    for case in conformance.cases():
        yield Source(f"node/{case.name}", case.model)
    for first in (True, False):
        for name in zoo.names():
            yield from _exports(name, first=first)


def _exports(name: str, *, first: bool) -> Iterator[Source]:
    """An architecture for inference and training: first one attention implementation each, then the other."""
    from fuseline.tools.campaigns import zoo

    attentions = zoo.attentions(name)
    if first or len(attentions) > 1:
        inference, training = (-1, 0) if first else (0, -1)
        for kind, attention in (("inference", attentions[inference]), ("training", attentions[training])):
            yield Source(f"zoo-{kind}/{name}-{attention}", None, name, attention)


def keep_all(folder: Path, wanted: re.Pattern[str], processes: int) -> None:
    """Copy or export every model that the record lacks."""
    jobs = [(s, folder) for s in sources() if wanted.search(s.name) and not s.kept(folder)]
    spread("models", _keep, jobs, lambda job: job[0].kept(job[1]), processes)


def _keep(job: tuple[Source, Path]) -> None:
    source, folder = job
    path, failed = source.path(folder), source.path(folder, ".failed")
    path.parent.mkdir(parents=True, exist_ok=True)
    if source.file is not None:
        shutil.copyfile(source.file, path)
        return
    # What a crash leaves behind: the next run does not try again.
    failed.write_text("the process died\n")
    try:
        _export(source).save(path)
    except Exception as error:  # an export fails in as many ways as torch has
        failed.write_text(f"{type(error).__name__}: {error}\n")
    else:
        failed.unlink()


def _export(source: Source) -> Any:
    import torch

    import fuseline
    from fuseline.tools.campaigns import zoo

    torch.set_num_threads(1)
    train = source.name.startswith("zoo-training/")
    model = zoo.build(source.architecture, attention=source.attention, dropout=0.1 if train else 0.0)
    model.train(train)
    # Fresh weights are 1 and 0 in many places, and fold away.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
    return fuseline.export(model, train=train, check=False)
