"""What to keep for the backward half and what to compute again: a minimum cut.

Every value of the forward half that the backward half reads must be kept, or be computed again from values
that are kept. The forward graph is cut between what only the first run can give (results of operators that
are not repeated) and what is needed later: the values on the cut are the fewest bytes that must be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import networkx as nx
import onnx_ir as ir

from fuseline.engine.analysis import Costs
from fuseline.engine.memory.origins import backward_nodes
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op, read_by, subgraphs
from fuseline.engine.operators import Trait, record
from fuseline.engine.operators.costs import size_in_bytes

__all__ = ["Choice", "What", "choose"]

What = Literal["cheap", "layers", "most"]
_SOURCE, _SINK = "source", "sink"
_CHEAP = 16
"""Operations for each byte that a node makes; products and attention over anything wide take more."""


_NEIGHBOURHOOD = 6
"""A place is narrow if so many nodes in front of it and behind it are crossed by no less."""


@dataclass(frozen=True)
class Choice:
    """Names of the values that are kept for the backward half, and of those that it computes again."""

    kept: frozenset[str]
    repeated: frozenset[str]


def choose(model: Model, what: What, every: int = 1) -> Choice:
    """The plan of least memory for a differentiated model at concrete sizes.

    Of the narrow places one in `every` so many is fixed: fewer keep less, and make more again at once.
    """
    backward = backward_nodes(model.graph)
    forward = [node for node in model.graph if node not in backward]
    needed = {v for node in backward for v in read_by(node)}
    # Without fixed points, the last layer's values would be made again from the first layer's.
    boundaries = _narrow_values(forward, every)
    costs = Costs(model)

    def again(node: ir.Node) -> bool:
        if not _repeatable(node) or any(v in boundaries or v.is_graph_output() for v in node.outputs):
            return False
        return what != "cheap" or _is_cheap(node, costs)

    kept = _cut(forward, needed, again)
    repeated = _behind(needed, kept, {v for node in forward for v in node.outputs})
    return Choice(frozenset(str(v.name) for v in kept), frozenset(str(v.name) for v in repeated))


def _repeatable(node: ir.Node) -> bool:
    """Whether the node gives the same again: it is pure, or draws what it drops from a seed."""
    operator = record(node)
    if operator is None or operator.has(Trait.STATEFUL) or any(subgraphs(node)):
        return False
    if is_op(node, "Shape", "Size"):
        return False  # a few bytes, which would keep the value alive that they tell of
    if not operator.has(Trait.RANDOM):
        return True
    return operator.declared is not None and any(i.name == "seed" for i in operator.declared.inputs)


def _is_cheap(node: ir.Node, costs: Costs) -> bool:
    operations, made = costs[node].operations, sum(map(_bytes, node.outputs))
    return isinstance(operations, int) and operations <= _CHEAP * max(made, 1)


def _bytes(value: ir.Value) -> int:
    found = size_in_bytes(value)
    return found if isinstance(found, int) else 0


def _cut(
    forward: Sequence[ir.Node], needed: Iterable[ir.Value], again: Callable[[ir.Node], bool]
) -> set[ir.Value]:
    made = {value for node in forward for value in node.outputs if value.name}
    wiring: nx.DiGraph[object] = nx.DiGraph()
    wiring.add_nodes_from([_SOURCE, _SINK])
    for value in made:
        wiring.add_edge((value, "in"), (value, "out"), capacity=max(_bytes(value), 1))
    for node in forward:
        repeated = again(node)
        for value in (v for v in node.outputs if v in made):
            if not repeated:
                wiring.add_edge(_SOURCE, (value, "in"))
                continue
            operands = [v for v in read_by(node) if v in made]
            wiring.add_edges_from(((operand, "out"), (value, "in")) for operand in operands)
    wiring.add_edges_from(((value, "out"), _SINK) for value in needed if value in made)
    _, (near, _) = nx.minimum_cut(wiring, _SOURCE, _SINK)
    return {value for value in made if (value, "in") in near and (value, "out") not in near}


def _behind(needed: Iterable[ir.Value], kept: set[ir.Value], made: set[ir.Value]) -> set[ir.Value]:
    """What has to be computed again to get from the kept values to the needed ones."""
    found: set[ir.Value] = set()
    pending = [v for v in needed if v in made and v not in kept]
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found.add(value)
        producer = value.producer()
        assert producer is not None
        pending.extend(v for v in read_by(producer) if v in made and v not in kept)
    return found


def _narrow_values(forward: Sequence[ir.Node], every: int) -> set[ir.Value]:
    """The values that cross the narrowest places of the forward half: the boundaries of its layers."""
    position = {node: index for index, node in enumerate(forward)}
    last = {
        value: max((position[use.node] for use in value.uses() if use.node in position), default=index)
        for node, index in position.items()
        for value in node.outputs
        if value.name
    }
    crossing: list[set[ir.Value]] = []
    alive: set[ir.Value] = set()
    for index, node in enumerate(forward):
        alive = {v for v in alive if last[v] > index} | {v for v in node.outputs if last.get(v, -1) > index}
        crossing.append(alive)
    widths = [sum(map(_bytes, values)) for values in crossing]
    places: list[set[ir.Value]] = []
    for index, width in enumerate(widths):
        around = widths[max(0, index - _NEIGHBOURHOOD) : index + _NEIGHBOURHOOD + 1]
        if 0 < width == min(around) and width < max(around):
            places.append(crossing[index])
    return {value for place in places[::every] for value in place}
