"""How long values live: from the node that makes them to the last that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import read_by
from fuseline.engine.operators import Trait, record
from fuseline.engine.operators.costs import size_in_bytes
from fuseline.engine.shapes.dims import Dim, evaluate

__all__ = ["Lifetime", "Liveness"]


@dataclass(frozen=True)
class Lifetime:
    """First and last position, both included: −1 is before all nodes, the number of nodes behind them."""

    first: int
    last: int
    bytes: Dim


class Liveness:
    """The main graph's values over an order of its nodes: that of the graph, unless another is given.

    A value that a branch captures is read by the node that has the branch. Inputs and initializers are there
    from the beginning and outputs to the end, as whoever runs the graph holds them. A view has no memory of
    its own, unless it is an output: `storage` names the value whose memory it is, which lives as long as any
    of its views.
    """

    def __init__(self, model: Model, order: Sequence[ir.Node] | None = None) -> None:
        self.order = list(model.graph if order is None else order)
        self.storage: dict[ir.Value, ir.Value] = {}
        self.held: set[ir.Value] = {*model.graph.inputs, *model.graph.initializers.values()}
        self._first: dict[ir.Value, int] = dict.fromkeys(self.held, -1)
        self._last: dict[ir.Value, int] = dict.fromkeys(self.held, len(self.order))
        for position, node in enumerate(self.order):
            self._visit(position, node)
        for output in model.graph.outputs:
            self._extend(output, len(self.order))
            self.held.add(self.memory(output))
        self.lifetimes = {
            value: Lifetime(first, self._last[value], size_in_bytes(value))
            for value, first in self._first.items()
        }

    def memory(self, value: ir.Value) -> ir.Value:
        """The value whose memory it is: itself, unless it is a view."""
        return self.storage.get(value, value)

    def may_overwrite(self, node: ir.Node) -> list[ir.Value]:
        """Inputs whose memory the node's first output could take over: they end here, and are as large."""
        operator = record(node)
        if operator is None or not operator.in_place or not node.outputs:
            return []
        position, wanted = self._first[node.outputs[0]], size_in_bytes(node.outputs[0])
        found = [node.inputs[i] for i in operator.in_place if i < len(node.inputs)]
        roots = [self.memory(v) for v in found if v is not None]
        return [
            root
            for root in roots
            if wanted is not None
            and root not in self.held
            and self._last[root] == position
            and self.lifetimes[root].bytes == wanted
        ]

    def usage(self, sizes: Mapping[str, int]) -> list[int | None]:
        """The bytes alive at each node, without what is held from outside; None where sizes are not known."""
        changes = [0] * (len(self.order) + 1)
        for value, life in self.lifetimes.items():
            if value in self.held and life.first < 0:
                continue
            amount = evaluate(life.bytes, sizes)
            if not isinstance(amount, int):
                return [None] * len(self.order)
            changes[max(life.first, 0)] += amount
            changes[min(life.last + 1, len(self.order))] -= amount
        total, alive = 0, []
        for change in changes[:-1]:
            total += change
            alive.append(total)
        return list(alive)

    def _visit(self, position: int, node: ir.Node) -> None:
        for value in read_by(node):
            self._extend(value, position)
        operator = record(node)
        for index, value in enumerate(node.outputs):
            source = node.inputs[0] if node.inputs and not value.is_graph_output() else None
            if index == 0 and source is not None and operator is not None and operator.has(Trait.VIEW):
                self.storage[value] = self.memory(source)
                self._extend(value, position)
            elif value.name:
                self._first[value] = self._last[value] = position

    def _extend(self, value: ir.Value, position: int) -> None:
        root = self.memory(value)
        if root in self._last:
            self._last[root] = max(self._last[root], position)
