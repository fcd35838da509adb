"""The cheapest way to stay within a budget of memory: which passes, what they reach, what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fuseline.engine.analysis import Costs
from fuseline.engine.errors import FuselineError
from fuseline.engine.memory.simulation import Simulation
from fuseline.engine.memory.sizes import at_sizes
from fuseline.engine.model import Model
from fuseline.engine.observer import Observer
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property

__all__ = ["MemoryPlan", "OverBudgetError", "candidates", "cheapest", "parse_budget"]

_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "b": 1}
_OPERATIONS_PER_BYTE = 8
"""How many operations take as long as moving a byte; a node costs the larger of both."""


class OverBudgetError(FuselineError):
    """No plan stays within the budget of memory."""


@dataclass(frozen=True)
class MemoryPlan:
    """Passes, the model behind them, the peak that they reach, the estimated extra time (0.1: a tenth)."""

    name: str
    passes: str
    model: Model
    peak: int
    extra: float


def candidates(
    model: Model,
    sizes: Mapping[str, int],
    *,
    clipping: bool = False,
    observers: Callable[[str], Sequence[Observer]] = lambda _: (),
) -> list[MemoryPlan]:
    """Every plan for a training step or an inference graph at these sizes, the cheapest first.

    With `clipping` no parameter may be updated before all gradients are there. `observers` gives those of a
    plan by its name.
    """
    at = "+".join(f"{name}={size}" for name, size in sizes.items())
    early = model.has(Property.OPTIMIZER) and not model.has(Property.ORDERED) and not clipping
    found = []
    base = 0
    for name, passes in _choices(model, at, early):
        made = Pipeline.parse(passes).run(model, observers(name)).model if passes else model
        concrete = at_sizes(made, sizes)
        work = _work(concrete)
        base = base or work
        peak, extra = Simulation(concrete).peak, work / base - 1 if base else 0.0
        found.append(MemoryPlan(name, passes, made, peak, extra))
    return sorted(found, key=lambda plan: plan.extra)


def cheapest(plans: Sequence[MemoryPlan], budget: int) -> MemoryPlan:
    """The first plan within the budget; the smallest reachable figure is named where there is none."""
    fitting = next((plan for plan in plans if plan.peak <= budget), None)
    if fitting is not None:
        return fitting
    best = min(plans, key=lambda plan: plan.peak)
    raise OverBudgetError(
        f"no plan fits into {budget / 1e6:,.1f} MB; the smallest reachable is {best.peak / 1e6:,.1f} MB "
        f"({best.name}, about {best.extra:.0%} more time)",
        hint="smaller batches or shorter sequences need less",
    )


def parse_budget(text: str | float, whole: int) -> int:
    """Bytes of "2GB", "500 MB", or of a fraction of what the plain plan takes."""
    if isinstance(text, str):
        digits = text.strip().rstrip("bBgGiIkKmM ")
        unit = text.strip()[len(digits) :].strip().lower()
        try:
            number = float(digits)
        except ValueError:
            number = -1.0
        if number <= 0 or (unit and unit not in _UNITS):
            raise FuselineError(f"{text!r} is no amount of memory", hint='write "2GB", "500MB", or 0.5')
        return int(number * _UNITS[unit]) if unit else parse_budget(number, whole)
    if not 0 < text <= 1:
        raise FuselineError(f"{text!r} is no fraction of memory", hint='write "2GB", "500MB", or 0.5')
    return int(text * whole)


def _choices(model: Model, at: str, early: bool) -> list[tuple[str, str]]:
    sizes = f"sizes={at}" if at else ""
    order = f"hoist-shapes,order-for-memory{{{sizes}}}" if not model.has(Property.ORDERED) else ""
    found = [("as it is", ""), ("ordered", order)]
    if model.has(Property.DIFFERENTIATED) and not model.has(Property.ORDERED):
        for what in ("cheap", "layers"):
            options = ",".join(filter(None, (f"what={what}", sizes)))
            found.append((f"recompute {what}", f"{order},recompute{{{options}}}"))
    if early:
        found += [(f"{name}, release early", f"{passes},release-early") for name, passes in found[1:]]
    return [(name, passes) for name, passes in found if passes or name == "as it is"]


def _work(model: Model) -> int:
    """Operations, or what moving the bytes takes, of every node."""
    total = 0
    for cost in Costs(model).values():
        moved = cost.traffic if isinstance(cost.traffic, int) else 0
        operations = cost.operations if isinstance(cost.operations, int) else 0
        total += max(operations, moved * _OPERATIONS_PER_BYTE)
    return total
