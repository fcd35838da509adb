"""The errors of exporting."""

from __future__ import annotations

from fuseline.engine.errors import FuselineError, GateFailed

__all__ = ["ExportError", "ExportMismatch"]


class ExportError(FuselineError):
    """A model could not be turned into a graph; the message says why and the hint what to do."""


class ExportMismatch(ExportError, GateFailed):
    """A model was exported, but the graph does not compute what torch computes."""
