"""Where a pass author's mistake is: errors in a plugin carry its file and line."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuseline.engine.errors import FuselineError, PassError

__all__ = ["blamed", "called_from", "defined_at", "raised_at", "written_at"]

_ENGINE = str(Path(__file__).resolve().parent)
_LIBRARIES = ("site-packages", str(Path(inspect.__file__).parent))


def raised_at(error: BaseException) -> str | None:
    """File and line of the innermost frame that is neither the engine's nor a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _foreign(f.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def defined_at(function: Callable[..., Any]) -> str:
    """File and line where a function is written."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def written_at(kind: type[Any]) -> str | None:
    """File and line where a class is written; None where it has no source."""
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return None


def called_from() -> str | None:
    """File and line that called the function which asks; None if the engine did."""
    frame = sys._getframe(2)
    name = frame.f_code.co_filename
    return None if _foreign(name) else f"{name}:{frame.f_lineno}"


@contextmanager
def blamed(owner: str, function: Callable[..., Any]) -> Iterator[None]:
    """Errors inside become errors of the pass `owner`, at a line of its function."""
    try:
        yield
    except (
        Exception,
        SystemExit,
    ) as error:  # who calls exit() in a plugin would end the run as if all were well
        head = f"{owner!r}, {function.__name__} at {raised_at(error) or defined_at(function)}"
        if isinstance(error, FuselineError):
            raise type(error)(f"{head}: {error.message}", hint=error.hint) from error
        raise PassError(f"{head}: {type(error).__name__}: {error}") from error


def _foreign(filename: str) -> bool:
    path = str(Path(filename).resolve())
    return path.startswith(_ENGINE) or any(part in path for part in _LIBRARIES) or filename.startswith("<")
