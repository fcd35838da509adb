"""Orders of a graph's nodes that need less memory at once."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.memory.simulation import Simulation
from fuseline.engine.model import Model
from fuseline.engine.nodes import read_by
from fuseline.engine.operators import record
from fuseline.engine.operators.costs import size_in_bytes

__all__ = ["best_order"]


def best_order(model: Model) -> tuple[int, int, list[str]] | None:
    """(peak before, peak after, names of the nodes in their new order); None if no order is better."""
    before = Simulation(model).peak
    nodes = list(model.graph)
    raised = _raised(_raised(nodes))  # what is raised lets others be the last readers
    found = [(Simulation(model, order).peak, order) for order in (raised, _sunk(raised), _sunk(nodes))]
    after, order = min(found, key=lambda item: item[0])
    return (before, after, [str(node.name) for node in order]) if after < before else None


def _raised(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Each node that is the last to read a value right behind the last of its operands to be made.

    Gradients of weights are what this is about: they may stand at the end of a graph, where they keep every
    layer's activations alive until then.
    """
    place = {node: float(index) for index, node in enumerate(nodes)}
    fixed = _last_with_effects(nodes)
    behind: dict[float, int] = {}  # how many went behind a node already: they keep their order
    for index, node in enumerate(nodes):
        if index < fixed or not _movable(node) or not _freed(node, place):
            continue
        made = [place[p] for v in read_by(node) if (p := v.producer()) is not None and p in place]
        last = max(made, default=float(index))
        if last < index - 1:
            behind[last] = behind.get(last, 0) + 1
            place[node] = last + (1 - 2.0 ** -behind[last]) / (len(nodes) + 1)
    return sorted(nodes, key=lambda n: place[n])


def _sunk(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Each node right before its first reader, where it frees no more than it takes by running early."""
    place = {node: float(index) for index, node in enumerate(nodes)}
    fixed = _last_with_effects(nodes)
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        readers = [place[use.node] for v in node.outputs for use in v.uses() if use.node in place]
        if not _movable(node) or not readers or index < fixed:
            continue
        first = min(readers)
        if _taken(node) > _freed(node, place):
            # Nodes that go to one place keep their order: what is later in the graph was moved before.
            place[node] = first - 1 / (2 + len(nodes) - index)
    return sorted(nodes, key=lambda n: place[n])


def _movable(node: ir.Node) -> bool:
    """A node with effects keeps its place, and so does one that returns a value or holds a graph."""
    operator = record(node)
    inside = any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values() if not a.is_ref())
    returned = any(v.is_graph_output() for v in node.outputs)
    return operator is not None and operator.pure and not inside and not returned


def _last_with_effects(nodes: Sequence[ir.Node]) -> int:
    """Nodes in front of one that overwrites its inputs must not pass it."""
    records = [record(node) for node in nodes[:-1]]
    return max((i for i, r in enumerate(records) if r is not None and not r.pure and r.domain), default=-1)


def _taken(node: ir.Node) -> int:
    return sum(found for v in node.outputs if isinstance(found := size_in_bytes(v), int))


def _freed(node: ir.Node, place: dict[ir.Node, float]) -> int:
    """The bytes of operands that nobody reads after this node."""
    total = 0
    for value in dict.fromkeys(read_by(node)):
        size = size_in_bytes(value)
        last = max((place[use.node] for use in value.uses() if use.node in place), default=0.0)
        if value.producer() is not None and not value.is_graph_output() and isinstance(size, int):
            total += size if last <= place[node] else 0
    return total
