"""The cheapest way to stay within a budget of memory: which passes, what they reach, what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import get_args

from fuseline.engine.analysis import Costs
from fuseline.engine.errors import FuselineError
from fuseline.engine.memory.arena import held
from fuseline.engine.memory.options import sizes_text
from fuseline.engine.memory.recomputation import What
from fuseline.engine.memory.simulation import Simulation
from fuseline.engine.memory.sizes import at_sizes
from fuseline.engine.model import Model
from fuseline.engine.observer import Observer
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property

__all__ = [
    "MemoryPlan",
    "OverBudgetError",
    "amount",
    "candidates",
    "curve",
    "parse_budget",
    "unplanned",
    "within",
]

_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "b": 1}
_FORMS = 'write "2GB", "500MB", or 0.5'
_OPERATIONS_PER_BYTE = 8
"""How many operations take as long as moving a byte; a node costs the larger of both."""


class OverBudgetError(FuselineError):
    """No plan stays within the budget of memory."""


@dataclass(frozen=True)
class MemoryPlan:
    """Passes, the model behind them, what a run holds with them, and the estimated extra time.

    It holds one block, the gaps in it included, and the workspace; an extra time of 0.1 is a tenth.
    """

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
    at = sizes_text(sizes)
    if model.ir.functions:
        model = Pipeline.parse("inline-functions").run(model).model  # as the runtime does
    early = model.has(Property.OPTIMIZER) and not model.has(Property.ORDERED) and not clipping
    found = []
    base = 0
    for name, passes in _choices(model, at, early):
        made = Pipeline.parse(passes).run(model, observers(name)).model if passes else model
        concrete = at_sizes(made, sizes)
        work = _work(concrete)
        base = base or work
        # An estimate: it promises no plan to be faster than none.
        extra = max(work / base - 1, 0.0) if base else 0.0
        found.append(MemoryPlan(name, passes, made, held(Simulation(concrete)), extra))
    return sorted(found, key=lambda plan: (round(plan.extra, 3), found.index(plan)))


def unplanned(plans: Sequence[MemoryPlan]) -> int:
    """What the model holds as it is."""
    return next(plan.peak for plan in plans if not plan.passes)


def within(
    plans: Sequence[MemoryPlan], budget: str | float, whole: int | None = None
) -> tuple[MemoryPlan, int]:
    """The first plan within the budget, and the budget in bytes; where none is, the least is named.

    A fraction is one of `whole`, by default of what the model holds as it is.
    """
    limit = parse_budget(budget, unplanned(plans) if whole is None else whole)
    fitting = next((plan for plan in plans if plan.peak <= limit), None)
    if fitting is not None:
        return fitting, limit
    best = min(plans, key=lambda plan: plan.peak)
    raise OverBudgetError(
        f"no plan fits into {amount(limit, floor=True)}; the smallest reachable is {amount(best.peak)} "
        f"({best.name}, about {best.extra:.0%} more time)",
        hint="smaller batches or shorter sequences need less",
    )


def amount(size: int, *, floor: bool = False) -> str:
    """Bytes as text that `parse_budget` reads, in a unit that leaves digits to compare.

    Rounded up, so that what is named as needed is enough; a budget is rounded down, to look no larger.
    """
    unit = next((unit for unit in ("GB", "MB", "kB") if size >= 10 * _UNITS[unit.lower()]), "B")
    if unit == "B":
        return f"{size} B"
    tenths = int(_UNITS[unit.lower()]) // 10
    return f"{(size // tenths if floor else -(-size // tenths)) / 10:.1f} {unit}"


def parse_budget(budget: str | float, whole: int) -> int:
    """Bytes of "2GB", "500 MB", or of a fraction of what a run takes without a plan."""
    if isinstance(budget, str):
        digits = budget.strip().rstrip("bBgGiIkKmM ")
        unit = budget.strip()[len(digits) :].strip().lower()
        try:
            number = float(digits) * _UNITS.get(unit, 1)
        except ValueError:
            number = -1.0
        if not 0 < number < math.inf or (unit and unit not in _UNITS):
            raise FuselineError(f"{budget!r} is no amount of memory", hint=_FORMS)
        if unit and round(number) >= 1:
            return round(number)
        if unit:
            raise FuselineError(f"{budget!r} is less than a byte", hint=_FORMS)
        if number > 1:
            raise FuselineError(f"{budget!r} has no unit, and is no fraction of memory", hint=_FORMS)
        return round(number * whole)
    if isinstance(budget, bool) or not isinstance(budget, Real) or not 0 < budget <= 1:
        raise FuselineError(f"{budget!r} is no fraction of memory", hint=_FORMS)
    return round(float(budget) * whole)


def _choices(model: Model, at: str, early: bool) -> list[tuple[str, str]]:
    """Names and passes; of those that cost the same, the first is preferred."""
    if model.has(Property.ORDERED):
        return [("as it is", "")]
    options = f"{{sizes={at}}}" if at else ""
    starts = [("ordered", "")]
    if model.has(Property.DIFFERENTIATED):
        starts = [("ordered", "sparse-embedding-gradient,")]
        if Pipeline.parse("chunk-loss").run(model).changes:
            starts.append(("loss in chunks", "chunk-loss,sparse-embedding-gradient,"))
    found = []
    for name, smaller in starts:
        ordered = f"hoist-shapes,{smaller}order-for-memory{options}"
        found.append((name, ordered))
        if model.has(Property.DIFFERENTIATED):
            again = [(what, f"what={what},{options[1:-1]}") for what in get_args(What)]
            found += [
                (
                    f"recompute {what}" if name == "ordered" else f"{name}, recompute {what}",
                    f"{ordered},recompute{{{given.rstrip(',')}}}",
                )
                for what, given in again
            ]
    if early:
        last = "release-early,sparse-embedding-gradient"  # rows can go to an update of their table alone
        found += [(f"{name}, release early", f"{passes},{last}") for name, passes in found]
    return [("as it is", ""), *found]


def curve(plans: Sequence[MemoryPlan]) -> list[MemoryPlan]:
    """The plans worth having, the fastest first: no other needs less memory and no more time."""
    found: list[MemoryPlan] = []
    for plan in sorted(plans, key=lambda p: (p.extra, p.peak)):
        if not found or plan.peak < found[-1].peak:
            found.append(plan)
    return found


def _work(model: Model) -> int:
    """Operations, or what moving the bytes takes, of every node."""
    total = 0
    for cost in Costs(model).values():
        moved = cost.traffic if isinstance(cost.traffic, int) else 0
        operations = cost.operations if isinstance(cost.operations, int) else 0
        total += max(operations, moved * _OPERATIONS_PER_BYTE)
    return total
