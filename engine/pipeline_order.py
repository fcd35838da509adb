"""Whether the passes of a pipeline can follow each other at all, seen before any model is.

A pipeline says nothing about the model it gets, so a property is unknown until a pass requires, forbids,
ensures or invalidates it. What a pass asks for, and nothing before it decided, the model has to bring along;
whatever contradicts that, or an earlier pass, can never run.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuseline.engine.errors import PipelineError
from fuseline.engine.pass_ import Condition, Pass
from fuseline.engine.properties import Property

__all__ = ["check_order"]


def check_order(passes: Iterable[Pass]) -> None:
    """Refuse passes in an order in which one of them would refuse every model."""
    holds: dict[Property, bool] = {}
    because: dict[Property, str] = {}
    for item in passes:
        for condition in item.conditions():
            known = holds.setdefault(condition.property, condition.holds)
            if known != condition.holds:
                raise _contradiction(item, condition, because[condition.property])
            because.setdefault(condition.property, f"{item.name!r}, which needs it so")
        for changed, value in (*((p, False) for p in item.invalidates), *((p, True) for p in item.ensures)):
            holds[changed], because[changed] = value, f"{item.name!r}"


def _contradiction(item: Pass, condition: Condition, earlier: str) -> PipelineError:
    error = PipelineError(condition.message(item.name), hint=condition.hint)
    error.add_note(f"decided by {earlier}, earlier in this pipeline")
    return error
