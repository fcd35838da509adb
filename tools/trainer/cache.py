"""The compile cache: graphs by the hash of everything they depend on.

Files are written beside their place and renamed, so that a reader sees a whole file or none; a lock per key
lets one process compile while the others wait for its result.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model

__all__ = ["CompileCache", "code_version", "digest"]

LIMIT = 128
"""Entries kept; the ones unused for longest go first."""


def digest(parts: Mapping[str, Any]) -> str:
    """The key: a hash over named JSON values."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def code_version() -> str:
    """A hash over this package's own sources and the versions of what it compiles with."""
    hashed = hashlib.sha256()
    for name in ("engine", "exporters", "passes", "kernels", "tools.trainer"):
        for source in _sources(Path(str(resources.files(f"fuseline.{name}").joinpath("__init__.py"))).parent):
            hashed.update(source.read_bytes())
    for package in (
        "torch",
        "transformers",
        "onnx",
        "onnx_ir",
        "onnxscript",
        "onnxruntime-training-cpu",
        "peft",
    ):
        hashed.update(f"{package}={_version(package)}".encode())
    return hashed.hexdigest()[:16]


def _sources(folder: Path) -> list[Path]:
    return sorted(p for suffix in ("*.py", "*.yaml") for p in folder.rglob(suffix))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


class CompileCache:
    """A folder of compiled graphs; None as folder keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    @classmethod
    def at(cls, chosen: str | os.PathLike[str] | None) -> CompileCache:
        """The folder that the user chose, "off", or by default FUSELINE_CACHE or ~/.cache/fuseline."""
        if chosen == "off":
            return cls(None)
        default = os.environ.get("FUSELINE_CACHE", Path.home() / ".cache" / "fuseline")
        return cls(Path(chosen if chosen is not None else default) / "graphs")

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the key against other processes; a process that dies lets go."""
        if self.folder is None:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{key}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def load(self, key: str, parts: int) -> list[Model] | None:
        """The graphs stored under the key; None if one is missing or cannot be read."""
        if self.folder is None:
            return None
        paths = self._paths(key, parts)
        if not all(p.is_file() for p in paths):
            return None
        try:
            models = [Model.load(p) for p in paths]
        except ModelError:
            return None
        for path in paths:
            os.utime(path)
        return models

    def store(self, key: str, models: Sequence[Model]) -> None:
        if self.folder is None:
            return
        for path, model in zip(self._paths(key, len(models)), models, strict=True):
            model.save(path)
        self._prune()

    def _paths(self, key: str, parts: int) -> list[Path]:
        assert self.folder is not None
        return [self.folder / f"{key}-{part}.onnx" for part in range(parts)]

    def _prune(self) -> None:
        assert self.folder is not None
        entries = sorted(self.folder.glob("*.onnx"), key=lambda p: p.stat().st_mtime, reverse=True)
        for stale in entries[LIMIT:]:
            stale.unlink(missing_ok=True)
