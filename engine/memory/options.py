"""Sizes of symbolic dimensions as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fuseline.engine.errors import FuselineError
from fuseline.engine.memory.sizes import symbols
from fuseline.engine.model import Model

__all__ = ["parse_sizes", "sizes_for", "sizes_text"]

_TYPICAL = 32
_WRITABLE = re.compile(r"[\w.:/#]+")


def parse_sizes(items: Iterable[str]) -> dict[str, int]:
    """Texts such as `batch=8`."""
    found: dict[str, int] = {}
    for item in items:
        name, equals, number = item.rpartition("=")
        if not equals or not number.isdigit():
            raise FuselineError(f"{item!r} is not a size", hint="write it as NAME=NUMBER: batch=8")
        found[name] = int(number)
    return found


def sizes_for(model: Model, items: Iterable[str]) -> dict[str, int]:
    """A number for every symbolic dimension: the one given, or a typical one."""
    return dict.fromkeys(symbols(model), _TYPICAL) | parse_sizes(items)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """The option of a pass; a name that cannot be written in a pipeline is left out, and is typical there."""
    return "+".join(f"{name}={size}" for name, size in sizes.items() if _WRITABLE.fullmatch(name))
