"""A step within a budget of memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fuseline.engine.errors import FuselineError
from fuseline.engine.memory.planning import (
    MemoryPlan,
    OverBudgetError,
    amount,
    candidates,
    parse_budget,
    within,
)
from fuseline.engine.memory.sizes import sizes_of, told_sizes
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.shapes.dims import dims_of, names_in
from fuseline.engine.training import optimizer as names
from fuseline.engine.training.optimizer import updates
from fuseline.engine.training.step_runners import keep_outputs

__all__ = ["Allowance", "check_planned", "checked_largest", "step_within"]


class Allowance:
    """The bytes that a step may take, and the runs that are known to stay within them."""

    def __init__(self, limit: int, largest: Mapping[str, Any], loss: str) -> None:
        self.limit = limit
        self._loss = loss
        self._largest = {name: tuple(value.shape) for name, value in largest.items()}
        self._known: set[tuple[Any, ...]] = set()

    def check(self, batch: Mapping[str, Any], outputs: Sequence[str], peak: Callable[[], int]) -> None:
        """Refuse what the plan was not made for and does not fit; `peak` says what a run would take."""
        run = (*((name, tuple(value.shape)) for name, value in batch.items()), *outputs)
        if run in self._known:
            return
        taken = 0 if {*outputs} <= {self._loss} and self._covers(batch) else peak()
        if taken > self.limit:
            raise OverBudgetError(
                f"this run would take {amount(taken)}, "
                f"and the memory_budget is {amount(self.limit, floor=True)}",
                hint="make the step with a batch of such shapes as `largest`, and ask for the loss alone",
            )
        self._known.add(run)

    def _covers(self, batch: Mapping[str, Any]) -> bool:
        return all(
            name in self._largest
            and len(value.shape) == len(self._largest[name])
            and all(size <= most for size, most in zip(value.shape, self._largest[name], strict=True))
            for name, value in batch.items()
        )


def checked_largest(largest: object) -> Mapping[str, Any]:
    """What is given as the largest batch, if it can be one."""
    if largest is None:
        raise FuselineError("a memory_budget needs `largest`: a batch of the largest shapes")
    if not isinstance(largest, Mapping) or not all(hasattr(array, "shape") for array in largest.values()):
        raise FuselineError(
            "`largest` is no batch: it is a dictionary of arrays by the names of inputs",
            hint="their contents do not matter: np.empty arrays of the largest shapes will do",
        )
    return largest


def check_planned(optimize: str | None, arena: bool | None) -> None:
    """Refuse what would run another graph than the planned one, or keep more than is alive."""
    if optimize not in (None, "none"):
        raise FuselineError(
            f"a memory_budget plans the graph as it is, and optimize={optimize!r} would change it",
            hint="leave `optimize` or the budget out",
        )
    if arena:
        raise FuselineError(
            "a memory_budget counts what is alive, and the runtime's arena keeps more",
            hint="leave arena=True or the budget out",
        )


def step_within(
    model: Model, budget: str | float, largest: Mapping[str, Any], *, clipping: bool
) -> tuple[MemoryPlan, Allowance]:
    """The cheapest plan, judged by the step that runs: without outputs that nobody asked for."""
    parse_budget(budget, 1)  # what is no amount of memory is said at once
    wanted = {model.facts.training.loss, names.APPLIED, *updates(model)}
    kept = tuple(str(v.name) for v in model.graph.outputs if v.name in wanted)
    running = Pipeline.of(keep_outputs(kept)).run(model).model
    shapes = {name: tuple(value.shape) for name, value in largest.items()}
    _refuse_untold(running, told_sizes(running, shapes))
    sizes = sizes_of(running, shapes)
    plans = candidates(running, sizes, clipping=clipping)
    chosen, limit = within(plans, budget)
    made = Pipeline.parse(chosen.passes).run(model).model if chosen.passes else model
    return replace(chosen, model=made), Allowance(limit, largest, str(model.facts.training.loss))


def _refuse_untold(model: Model, told: Mapping[str, int]) -> None:
    """A size that `largest` leaves open would count as 1, and the plan be one for hardly anything."""
    for value in model.graph.inputs:
        untold = [d for d in dims_of(value) or () if isinstance(d, str) and not {*names_in(d)} <= told.keys()]
        if untold and not str(value.name).startswith("optimizer."):
            raise FuselineError(
                f"`largest` does not tell the size {untold[0]!r} of the input {value.name!r}",
                hint="give an array of its largest shape too; its contents do not matter",
            )
