"""What a command is doing: a bar on a terminal, one line for each part in a pipe; on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from fuseline.engine.observer import Observer
from fuseline.tools.console import errors

if TYPE_CHECKING:
    from fuseline.engine.manager import Result, Step
    from fuseline.engine.model import Model

__all__ = ["Activity", "PassProgress", "activity"]


class Activity:
    """Called with what is done now; `count` says how far it has come."""

    def __call__(self, text: str) -> None:
        """A new part has begun."""

    def count(self, done: int, total: int) -> None:
        """So much of the part is done."""


class _Lines(Activity):
    def __call__(self, text: str) -> None:
        errors.print(text)


class _Bar(Activity):
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=None)

    def __call__(self, text: str) -> None:
        self._progress.update(self._task, description=text, total=None, completed=0)

    def count(self, done: int, total: int) -> None:
        self._progress.update(self._task, total=total, completed=done)


class PassProgress(Observer):
    """Tells which pass is running."""

    def __init__(self, tell: Activity) -> None:
        self._tell = tell

    def before(self, step: Step, model: Model) -> None:
        self._tell(f"{step.index} {step.name}")

    def finished(self, result: Result) -> None:
        self._tell("writing")


@contextmanager
def activity(*, quiet: bool = False, lines: bool = True) -> Iterator[Activity]:
    """What tells the user; quiet where a program reads the output. Without `lines` a pipe hears nothing."""
    if quiet or not (lines or errors.is_terminal):
        yield Activity()
    elif errors.is_terminal:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
        with Progress(*columns, TimeElapsedColumn(), console=errors, transient=True) as progress:
            yield _Bar(progress)
    else:
        yield _Lines()
