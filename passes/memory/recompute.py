"""The pass `recompute`."""

from __future__ import annotations

from typing import get_args

import onnx_ir as ir

from fuseline.engine.memory.arena import held
from fuseline.engine.memory.options import sizes_for
from fuseline.engine.memory.origins import Origin, backward_nodes
from fuseline.engine.memory.planning import OverBudgetError, amount, parse_budget
from fuseline.engine.memory.recomputation import Choice, What, choose
from fuseline.engine.memory.simulation import Simulation
from fuseline.engine.memory.sizes import at_sizes
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.pruning import leave_out_unread
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["Recompute"]

_EVERY = (1, 2, 4, 8)


class Recompute(Pass):
    """forward value … read by the backward half → a copy of its node, right before that reader

    What is kept is a minimum cut in bytes. `cheap` repeats whatever is no product, convolution or attention;
    `layers` keeps only what crosses the narrow places of layers and repeats all that is between them; `most`
    keeps every second, fourth, … of these places, as long as the peak beside gradients falls. Results are the
    same to the bit: what was dropped is dropped again by the same seed and stream. It pays only where the
    runtime follows the order of the graph, and is left out where the simulated peak would not fall.
    """

    name = "recompute"
    phase = "post-gradient"
    requires = (Property.DIFFERENTIATED,)
    forbids = (Property.ORDERED,)
    what: What = "cheap"
    budget: str = ""
    """What a run may take, such as 2GB, or 0.5 of what it takes: the first of cheap, layers and most that
    fits is made, none if it fits already; where none does, that is an error which names the least."""
    sizes: tuple[str, ...] = ()
    """Symbolic dimensions at which to judge, such as batch=8; others count as 32."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        concrete = at_sizes(model, sizes_for(model, self.sizes))
        before = Simulation(concrete)
        first = next(iter(model.graph))
        if self.budget and held(before) <= parse_budget(self.budget, held(before)):
            rewriter.reject(first, f"it fits: a run takes {amount(held(before))}")
            return 0
        choice, after = self._within(concrete, before) if self.budget else self._best(concrete, self.what)
        if after.peak >= before.peak:
            rewriter.reject(first, f"the peak would not fall: {before.peak:,} → {after.peak:,} bytes")
            return 0
        _repeat(model, rewriter, choice)
        return rewriter.changes

    def _within(self, concrete: Model, before: Simulation) -> tuple[Choice, Simulation]:
        """The plan that computes the least again and stays within the budget."""
        limit = parse_budget(self.budget, held(before))
        least = held(before)
        for what in get_args(What):
            choice, simulation = self._best(concrete, what)
            if held(simulation) <= limit:
                return choice, simulation
            least = min(least, held(simulation))
        raise OverBudgetError(
            f"no choice of what to compute again fits into {amount(limit, floor=True)}; "
            f"the smallest reachable is {amount(least)}",
            hint="smaller batches or shorter sequences need less",
        )

    def _best(self, concrete: Model, what: What) -> tuple[Choice, Simulation]:
        tried = [self._tried(concrete, what, every) for every in (_EVERY if what == "most" else (1,))]
        # `release-early` may come: what is kept must not hide among gradients that wait for each other.
        return min(tried, key=lambda made: _beside_gradients(made[1]))

    def _tried(self, concrete: Model, what: What, every: int) -> tuple[Choice, Simulation]:
        choice = choose(concrete, what, every)
        made = concrete.clone()
        _repeat(made, Rewriter(made, self.name), choice)
        return choice, Simulation(made)


def _beside_gradients(simulation: Simulation) -> int:
    rows = zip(simulation.alive, simulation.by_origin(), strict=True)
    return max((total - row.get(Origin.GRADIENT, 0) for total, row in rows), default=0)


def _repeat(model: Model, rewriter: Rewriter, choice: Choice) -> None:
    """Let the backward half read second makings of what is to be repeated."""
    backward = backward_nodes(model.graph)
    copies = _Copies(rewriter, choice)
    for node in [n for n in model.graph if n in backward]:
        for index, value in enumerate(node.inputs):
            if value is not None and value.name in choice.repeated:
                again = copies.of(value, node)
                if again is not None:
                    node.replace_input_with(index, again)
    copies.leave_out_unread()


class _Copies:
    """The second makings of values; each is made once, in front of the first node that wants it."""

    def __init__(self, rewriter: Rewriter, choice: Choice) -> None:
        self._rewriter, self._choice = rewriter, choice
        self._made: dict[ir.Value, ir.Value] = {}

    def of(self, value: ir.Value, reader: ir.Node) -> ir.Value | None:
        """The copy of a value for a reader; None if the rewrite is withheld."""
        if value not in self._made:
            node = value.producer()
            assert node is not None
            if not self._rewriter.permit(node, "computed again for the backward half"):
                return None
            self._repeat(node, reader)
        return self._made[value]

    def _repeat(self, node: ir.Node, reader: ir.Node) -> None:
        operands = [self._operand(v, reader) for v in node.inputs]
        op = self._rewriter.builder(reader)
        self._made.update(zip(node.outputs, op.again(node, operands), strict=True))
        self._rewriter.insert(reader, op.nodes, replaces=[node])

    def leave_out_unread(self) -> None:
        leave_out_unread(self._made.values())

    def _operand(self, value: ir.Value | None, reader: ir.Node) -> ir.Value | None:
        if value is None or value.name not in self._choice.repeated:
            return value
        if value not in self._made:
            node = value.producer()
            assert node is not None
            self._repeat(node, reader)
        return self._made[value]
