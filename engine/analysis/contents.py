"""What integer tensors hold."""

from __future__ import annotations

from fuseline.engine.model import Model
from fuseline.engine.shapes.values import ShapeValues

__all__ = ["Contents"]


class Contents(ShapeValues):
    """Known contents of integer values, learnt as they are asked for.

    A rewrite leaves what a value holds as it is: a pass may go on with one object over all of its own.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
