"""Which bridges were made in this process, and how the models behind them ran."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from fuseline.tools.trainer.bridge import Bridge

__all__ = ["calls", "reasons", "remember_bridges"]


def remember_bridges() -> list[Bridge]:
    """A list that every bridge joins from now on."""
    made: list[Bridge] = []
    plain = Bridge.__init__

    @functools.wraps(plain)
    def remembered(self: Bridge, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        made.append(self)

    Bridge.__init__ = remembered  # type: ignore[method-assign]
    return made


def calls(bridges: list[Bridge]) -> dict[str, int]:
    """How often each way was taken."""
    counted: Counter[str] = Counter()
    for bridge in bridges:
        counted.update(bridge.counts)
    return dict(counted)


def reasons(bridges: list[Bridge]) -> list[str]:
    """Why calls ran in torch."""
    return sorted({reason for bridge in bridges for reason in bridge.report().reasons})
