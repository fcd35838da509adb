"""Where results go, found out before the work is done."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from fuseline.engine.errors import FuselineError

__all__ = ["check_output_file", "check_output_folder", "refuse_special_file"]


def check_output_file(path: str | Path, *, beside: Iterable[str | Path | None] = ()) -> Path:
    """Make the folder the file goes to, and raise a FuselineError where the file cannot be written.

    `beside`: what else the work reads and writes. An output that is one of these would destroy it.
    """
    path = Path(path)
    if path.is_dir():
        raise FuselineError(f"the output {path} is a folder", hint="name a file in it")
    refuse_special_file(path)
    if any(path.resolve() == Path(other).resolve() for other in beside if other is not None):
        raise FuselineError(
            f"the output {path} would replace a file that the command reads or writes besides",
            hint="choose another name",
        )
    _try_writing(path.parent, path)
    return path


def refuse_special_file(path: Path) -> None:
    """Raise a FuselineError for a device, a pipe or a socket, which the rename at the end would replace."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FuselineError(f"the output {path} is a device or a pipe, no file", hint="name a file")


def check_output_folder(path: str | Path) -> Path:
    """Make the folder, and raise a FuselineError where nothing can be written into it."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise FuselineError(f"the output folder {path} is a file", hint="choose another name")
    _try_writing(path, path)
    return path


def _try_writing(folder: Path, wanted: Path) -> None:
    """Permissions alone do not tell: a full or read-only disk refuses as well."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".fuseline-", dir=folder):
            pass
    except OSError as error:
        raise FuselineError(
            f"{wanted} cannot be written: {error.strerror or error}", hint="choose another place for it"
        ) from error
