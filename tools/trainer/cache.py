"""The compile cache: graphs by the hash of everything they depend on.

Files are written beside their place and renamed, so that a reader sees a whole file or none; a lock per key
lets one process compile while the others wait for its result.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import onnx

from fuseline.engine.errors import ModelError
from fuseline.engine.files import atomic_write
from fuseline.engine.model import Model

logger = logging.getLogger(__name__)

__all__ = ["CompileCache", "code_version", "digest"]

_DIGEST = hashlib.sha256().digest_size
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
        "accelerate",
        "numpy",
    ):
        hashed.update(f"{package}={_version(package)}".encode())
    hashed.update(sys.version.encode())  # code is known by its bytes, and these are Python's own
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
        handle = self._lock_file(key)
        if handle is None:
            yield
            return
        with handle:
            yield

    def _lock_file(self, key: str) -> IO[str] | None:
        """The locked file of a key; a folder that cannot be used is used no more."""
        if self.folder is None:
            return None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = (self.folder / f"{key}.lock").open("w")
            fcntl.flock(handle, fcntl.LOCK_EX)
            return handle
        except OSError as error:
            self._give_up(error)
            return None

    def load(self, key: str, parts: int) -> list[Model] | None:
        """The graphs stored under the key; None if one is missing or is not what was written."""
        if self.folder is None:
            return None
        try:
            return [_read(path) for path in self._paths(key, parts)]
        except FileNotFoundError:
            return None
        except Exception as error:  # whatever is odd about a file, it counts as absent
            logger.warning("a compiled graph in %s cannot be used and is made anew: %s", self.folder, error)
            return None

    def store(self, key: str, models: Sequence[Model]) -> None:
        if self.folder is None:
            return
        try:
            for path, model in zip(self._paths(key, len(models)), models, strict=True):
                content = model.to_proto().SerializeToString()
                with atomic_write(path) as temporary:
                    temporary.write_bytes(hashlib.sha256(content).digest() + content)
            self._prune()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        logger.warning("the compile cache %s cannot be used, so nothing is kept: %s", self.folder, error)
        self.folder = None

    def _paths(self, key: str, parts: int) -> list[Path]:
        assert self.folder is not None
        return [self.folder / f"{key}-{part}.graph" for part in range(parts)]

    def _prune(self) -> None:
        assert self.folder is not None
        entries = sorted(self.folder.glob("*.graph"), key=lambda p: p.stat().st_mtime, reverse=True)
        for stale in entries[LIMIT:]:
            stale.unlink(missing_ok=True)


def _read(path: Path) -> Model:
    stored = path.read_bytes()
    digest, content = stored[:_DIGEST], stored[_DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        raise ModelError(f"{path.name} is damaged")
    proto = onnx.ModelProto()
    proto.ParseFromString(content)
    os.utime(path)
    return Model.from_proto(proto)
