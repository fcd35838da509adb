"""A region: the nodes in front of a reader that are computed for a part of their positions only."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from fuseline.engine.rewriting.positionwise import Axes

__all__ = ["MOVES_DATA", "Region", "grow"]

MOVES_DATA = frozenset(["Reshape", "Transpose"])


@dataclass
class Region:
    """The reader, whose first operand is wanted in part, and what is computed for that part alone."""

    reader: ir.Node
    nodes: dict[ir.Node, tuple[int, Axes]] = field(default_factory=dict)  # → its axis, its operands'

    def sources(self, node: ir.Node) -> list[ir.Node | None]:
        """What computes the operands of which a part is enough; None where that is outside."""
        values = (node.inputs[place] for place in self.nodes[node][1])
        producers = (v.producer() if v is not None else None for v in values)
        return [p if p in self.nodes else None for p in producers]

    def trim(self, idle: Callable[[ir.Node], bool]) -> None:
        """Give up nodes at the far end, behind which the cut is as good."""
        for node in reversed(list(self.nodes)):
            if idle(node) and not any(self.sources(node)):
                del self.nodes[node]


def grow(
    region: Region,
    axis: int,
    position: dict[ir.Node, int],
    rule: Callable[[ir.Node, int], Axes | None],
    *,
    through_outputs: bool = False,
) -> None:
    """Add whatever only the region reads, as far as `rule` says which part of its operands a node needs.

    With `through_outputs` the graph may return a value besides: who asks for it has it computed in full.
    """
    wanted: dict[tuple[ir.Node, int], int] = {(region.reader, 0): axis}
    for producer in _nearest_first(region, position):
        result = producer.outputs[0]
        axes = {wanted.get((user, place)) for user, place in result.uses()}
        part = axes.pop() if len(axes) == 1 else None
        if part is None or (result.is_graph_output() and not through_outputs):
            continue
        operands = rule(producer, part)
        if operands is not None:
            region.nodes[producer] = (part, operands)
            wanted.update({(producer, place): inner for place, inner in operands.items()})


def _nearest_first(region: Region, position: dict[ir.Node, int]) -> Iterator[ir.Node]:
    """Producers of what the region needs in part, each after all its users.

    Reads `region.nodes` as the caller adds to it: what is not added is not looked behind.
    """
    queue: list[tuple[int, ir.Node]] = []
    seen: set[ir.Node] = set()

    def enqueue(value: ir.Value | None) -> None:
        producer = value.producer() if value is not None else None
        if producer is not None and producer not in seen and producer.graph is region.reader.graph:
            seen.add(producer)
            heapq.heappush(queue, (-position[producer], producer))

    enqueue(region.reader.inputs[0])
    while queue:
        node = heapq.heappop(queue)[1]
        yield node
        if node in region.nodes:
            for place in region.nodes[node][1]:
                enqueue(node.inputs[place])
