"""One block of memory for a whole run: where in it every value lies.

Which values are alive together is known from the simulation, so each can be given a fixed place. The largest
are placed first, each at the lowest place that is free for as long as it lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fuseline.engine.errors import FuselineError
from fuseline.engine.memory.simulation import Simulation

__all__ = ["Arena", "Place", "Span", "held", "lay_out", "plan_arena"]

_ALIGNMENT = 64
"""A cache line: what ONNX Runtime gives every tensor."""
_ADDRESSABLE = 1 << 62


@dataclass(frozen=True)
class Span:
    """Memory that is taken at one node and given back behind another, both included."""

    name: str
    first: int
    last: int
    bytes: int

    def meets(self, other: Span) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Place:
    """Where in the block a span lies."""

    span: Span
    offset: int

    @property
    def end(self) -> int:
        return self.offset + _aligned(self.span.bytes)


@dataclass(frozen=True)
class Arena:
    """The places of all spans, in the order in which they are taken."""

    places: tuple[Place, ...]

    @property
    def size(self) -> int:
        return max((place.end for place in self.places), default=0)

    @property
    def alive(self) -> int:
        """What is alive at the worst moment: no block can be smaller."""
        changes: dict[int, int] = {}
        for place in self.places:
            changes[place.span.first] = changes.get(place.span.first, 0) + _aligned(place.span.bytes)
            changes[place.span.last + 1] = changes.get(place.span.last + 1, 0) - _aligned(place.span.bytes)
        total = highest = 0
        for position in sorted(changes):
            total += changes[position]
            highest = max(highest, total)
        return highest

    @property
    def fragmentation(self) -> float:
        """How much larger the block is than what is alive at once (0.02: by a fiftieth)."""
        return self.size / self.alive - 1 if self.alive else 0.0

    def check(self) -> None:
        """Prove that no two spans that are alive together share a byte."""
        by_offset = sorted(self.places, key=lambda place: place.offset)
        for index, place in enumerate(by_offset):
            for other in by_offset[index + 1 :]:
                if other.offset >= place.end:
                    break
                if place.span.meets(other.span):
                    raise FuselineError(
                        f"{place.span.name} and {other.span.name} would lie in one place at the same time",
                        hint="this is a fault of the planner; please report it",
                    )


def lay_out(spans: Sequence[Span]) -> Arena:
    """Places for these spans; spans without bytes need none."""
    whole = sum(span.bytes for span in spans)
    if whole > _ADDRESSABLE:
        raise FuselineError(
            f"the values of a run take {whole:.1e} bytes together, which no machine can address",
            hint="give smaller sizes",
        )
    order = sorted(
        (i for i, span in enumerate(spans) if span.bytes),
        key=lambda i: (-spans[i].bytes, spans[i].first - spans[i].last, i),
    )
    # One row for each span that has its place: first, last, beginning, end.
    table = np.zeros((len(order), 4), np.int64)
    for count, index in enumerate(order):
        span = spans[index]
        rows = table[:count]
        taken = rows[(rows[:, 0] <= span.last) & (rows[:, 1] >= span.first), 2:]
        size = _aligned(span.bytes)
        offset = _lowest(taken[taken[:, 0].argsort(kind="stable")].tolist(), size)
        table[count] = span.first, span.last, offset, offset + size
    found = {index: Place(spans[index], int(row[2])) for index, row in zip(order, table, strict=True)}
    return Arena(tuple(found[index] for index in sorted(found)))


def plan_arena(simulation: Simulation) -> Arena:
    """A block for the values of a simulated run; what the caller gets is the caller's, and not in it."""
    arena = lay_out([Span(*span) for span in simulation.spans()])
    arena.check()
    return arena


def held(simulation: Simulation) -> int:
    """What a run takes whose values lie in one block: the gaps in it and the workspace count."""
    return plan_arena(simulation).size + simulation.workspace


def _lowest(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest offset at which so much is free, beside intervals sorted by their beginning."""
    offset = 0
    for begin, end in taken:
        if begin - offset >= size:
            return offset
        offset = max(offset, end)
    return offset


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
