"""A step within a budget of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fuseline.engine.errors import FuselineError
from fuseline.engine.memory.planning import MemoryPlan, candidates, cheapest, parse_budget
from fuseline.engine.memory.sizes import sizes_of
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training import optimizer as names
from fuseline.engine.training.optimizer import updates
from fuseline.engine.training.step_runners import keep_outputs

__all__ = ["step_within"]


def step_within(
    model: Model, budget: str | float, largest: Mapping[str, Any] | None, *, clipping: bool
) -> MemoryPlan:
    """The cheapest plan, judged by the step that runs: without outputs that nobody asked for."""
    if largest is None:
        raise FuselineError("a memory_budget needs `largest`: a batch of the largest shapes")
    wanted = {model.facts.training.loss, names.APPLIED, *updates(model)}
    kept = tuple(str(v.name) for v in model.graph.outputs if v.name in wanted)
    running = Pipeline.of(keep_outputs(kept)).run(model).model
    sizes = sizes_of(running, {name: tuple(value.shape) for name, value in largest.items()})
    plans = candidates(running, sizes, clipping=clipping)
    chosen = cheapest(plans, parse_budget(budget, max(plan.peak for plan in plans)))
    made = Pipeline.parse(chosen.passes).run(model).model if chosen.passes else model
    return replace(chosen, model=made)
