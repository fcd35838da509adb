"""Errors that say what was found, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "FuselineError",
    "GateFailed",
    "ModelError",
    "PassError",
    "PipelineError",
    "did_you_mean",
    "root_cause",
]


class FuselineError(Exception):
    """A problem the user can act on; the command line shows it as one message and exits with 2."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class ModelError(FuselineError):
    """A model file or graph that is not what it has to be."""


class PipelineError(FuselineError):
    """A pipeline text, a YAML file or an option that cannot be understood."""


class PassError(FuselineError):
    """A pass that failed, broke its own promise, or was used where it must not be."""


class GateFailed(FuselineError):
    """A pass finished, but what it made did not stand an observer's check (verification, expectation)."""


def root_cause(error: BaseException) -> str:
    """The first line of the error at the bottom of a chain: what really happened."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """A hint naming the closest known words, or None."""
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(repr(c) for c in close)}?" if close else None
