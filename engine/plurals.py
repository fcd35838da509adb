"""Numbers with their nouns: 1 pass, 2 passes."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """`1 match`, `2,000 matches`."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "sh", "ch")) else "s"
    return f"{number:,} {noun}{ending}"
