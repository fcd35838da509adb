"""The table of draws: filled by decoration, read by the case maker."""

from __future__ import annotations

from collections.abc import Callable

from fuseline.tools.campaigns.fuzz.drawing import Drawing

__all__ = ["Draw", "draws", "table"]

Draw = Callable[[Drawing], None]

table: list[tuple[float, Draw]] = []
"""(weight, draw)"""


def draws(weight: float = 1.0) -> Callable[[Draw], Draw]:
    """Register a function that adds one operator (or a few that belong together) to a drawing."""

    def register(function: Draw) -> Draw:
        table.append((weight, function))
        return function

    return register
