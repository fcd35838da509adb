"""Putting something else under a name for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["swapped"]


@contextmanager
def swapped(holder: Any, name: str, replacement: Any) -> Iterator[None]:
    """`holder.name` is `replacement` inside, and what it was (or absent) afterwards."""
    missing = object()
    is_property = isinstance(getattr(type(holder), name, None), property)
    before = getattr(holder, name) if is_property else vars(holder).get(name, missing)
    setattr(holder, name, replacement)
    try:
        yield
    finally:
        if before is missing:
            delattr(holder, name)
        else:
            setattr(holder, name, before)
