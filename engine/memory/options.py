"""Sizes of symbolic dimensions as text."""

from __future__ import annotations

from collections.abc import Iterable

from fuseline.engine.errors import FuselineError
from fuseline.engine.memory.sizes import symbols
from fuseline.engine.model import Model

__all__ = ["parse_sizes", "sizes_for"]

_TYPICAL = 32


def parse_sizes(items: Iterable[str]) -> dict[str, int]:
    """Texts such as `batch=8`."""
    found: dict[str, int] = {}
    for item in items:
        name, equals, number = item.partition("=")
        if not equals or not number.isdigit():
            raise FuselineError(f"{item!r} is not a size", hint="write it as NAME=NUMBER: batch=8")
        found[name] = int(number)
    return found


def sizes_for(model: Model, items: Iterable[str]) -> dict[str, int]:
    """A number for every symbolic dimension: the one given, or a typical one."""
    return dict.fromkeys(symbols(model), _TYPICAL) | parse_sizes(items)
