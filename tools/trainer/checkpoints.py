"""Checkpoints that are either complete or ignored, whenever the process dies.

A folder carries a mark from before its first file is written until its last one is on disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from fuseline.engine.errors import FuselineError

__all__ = ["CheckpointMissing", "is_complete", "last_complete", "marked"]

MARK = "INCOMPLETE"
_STATE = "trainer_state.json"
_NAME = re.compile(r"^checkpoint-(\d+)$")


class CheckpointMissing(FuselineError, ValueError):
    """No checkpoint to resume from; of the type and text that the stock trainer raises."""


@contextmanager
def marked(folder: Path, *, main_process: bool) -> Iterator[None]:
    """Mark the folder as incomplete while it is being written; with many processes, until all are done."""
    mark = folder / MARK
    if main_process:
        folder.mkdir(parents=True, exist_ok=True)
        mark.touch()
        _sync(folder)
    _wait()
    yield
    _wait()
    if main_process:
        for file in folder.rglob("*"):
            if file.is_file():
                _sync(file)
        _sync(folder)
        mark.unlink()
        _sync(folder)


def is_complete(folder: Path) -> bool:
    """Whether everything was written; checkpoints of the stock Trainer have no mark and count as complete."""
    return (folder / _STATE).is_file() and not (folder / MARK).exists()


def last_complete(folder: Path) -> Path | None:
    """The complete checkpoint of the highest step."""
    found = [(int(m[1]), p) for p in folder.glob("checkpoint-*") if (m := _NAME.match(p.name))]
    return next((p for _, p in sorted(found, reverse=True) if is_complete(p)), None)


def _wait() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
