"""Sizes of symbolic dimensions as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fuseline.engine.errors import FuselineError
from fuseline.engine.memory.sizes import symbols
from fuseline.engine.model import Model

__all__ = ["parse_sizes", "sizes_for", "sizes_text"]

_TYPICAL = 32
_LARGEST = 2**63 - 1
_WRITABLE = re.compile(r"[\w.:/#]+")


def parse_sizes(items: Iterable[str]) -> dict[str, int]:
    """Texts such as `batch=8`."""
    found: dict[str, int] = {}
    for item in items:
        name, equals, number = item.rpartition("=")
        if not equals or not number.isdigit():
            raise FuselineError(f"{item!r} is not a size", hint="write it as NAME=NUMBER: batch=8")
        size = int(number)
        if size > _LARGEST:
            raise FuselineError(f"{item!r} is larger than any array", hint=f"the most is {_LARGEST}")
        if found.setdefault(name, size) != size:
            raise FuselineError(f"{name!r} is given as {found[name]} and as {size}", hint="give it once")
    return found


def sizes_for(model: Model, items: Iterable[str]) -> dict[str, int]:
    """A number for every symbolic dimension: the one given, or a typical one."""
    return dict.fromkeys(symbols(model), _TYPICAL) | parse_sizes(items)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """The option of a pass; a name that cannot be written in a pipeline is left out, and is typical there."""
    return "+".join(f"{name}={size}" for name, size in sizes.items() if _WRITABLE.fullmatch(name))
