"""What is known of an integer tensor that holds sizes."""

from __future__ import annotations

from dataclasses import dataclass

from fuseline.engine.shapes.dims import Dims, known

__all__ = ["Known"]


@dataclass(frozen=True)
class Known:
    """The elements of an integer tensor of rank 0 or 1."""

    items: Dims
    rank: int = 1

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The elements if all are numbers."""
        return known(self.items)
