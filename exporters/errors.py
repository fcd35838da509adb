"""The errors of exporting."""

from __future__ import annotations

from fuseline.engine.errors import FuselineError

__all__ = ["ExportError"]


class ExportError(FuselineError):
    """A model could not be turned into a graph; the message says why and the hint what to do."""
