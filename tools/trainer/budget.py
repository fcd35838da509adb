"""A budget of memory for what trains: a plan for each range of shapes, made before a batch of it runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from torch import Tensor

from fuseline.engine.memory.planning import MemoryPlan, candidates, parse_budget, unplanned, within
from fuseline.engine.memory.sizes import sizes_of
from fuseline.engine.model import Model

__all__ = ["Budget", "Sizes", "rounded_up"]

logger = logging.getLogger(__name__)
Sizes = tuple[tuple[str, int], ...]


class Budget:
    """Plans graphs for batches, and remembers which plans were made.

    Batches of changing lengths share a plan by ranges of sizes, four to each doubling: a plan holds for every
    batch that is no larger than the one it was made for.
    """

    def __init__(self, amount: str | float) -> None:
        parse_budget(amount, 1)  # what is no amount of memory is said at once
        self.amount = amount
        #: The plans made so far, by range; a graph that is made anew is planned anew.
        self.plans: dict[Sizes, MemoryPlan] = {}
        self._whole = 0

    def sizes(self, graph: Model, batch: Mapping[str, Tensor]) -> Sizes:
        """The range of shapes that a batch falls into."""
        found = sizes_of(graph, {name: tuple(value.shape) for name, value in batch.items()})
        return tuple((name, rounded_up(size)) for name, size in found.items())

    def within(self, graph: Model, sizes: Sizes) -> Model:
        """The graph by the cheapest plan for these sizes; an error where none fits.

        A fraction is one of the largest range so far: what fits there is no reason to refuse a smaller one.
        """
        plans = candidates(graph, dict(sizes))
        self._whole = max(self._whole, unplanned(plans))
        chosen, _ = within(plans, self.amount, self._whole)
        self.plans[sizes] = chosen
        logger.info(
            "memory for batches up to %s: %.1f MB by %r, about %.0f %% more time",
            ", ".join(f"{name}={size}" for name, size in sizes),
            chosen.peak / 1e6,
            chosen.name,
            100 * chosen.extra,
        )
        return chosen.model


def rounded_up(size: int) -> int:
    """The next of the sizes that ranges end with: 1 to 8, 10, 12, 14, 16, 20, 24, …"""
    step = max(1, 1 << max(0, size.bit_length() - 3))
    return -(-size // step) * step
