"""The pass: a named, documented, typed transformation of a model."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform

from fuseline.engine import options
from fuseline.engine.analysis.analyses import Analysis
from fuseline.engine.errors import PassError
from fuseline.engine.properties import Property

if TYPE_CHECKING:
    from fuseline.engine.model import Model
    from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["Condition", "Pass", "Phase"]

Phase = Literal["any", "inference", "pre-gradient", "post-gradient"]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Pass:
    """Base of all passes. A subclass's annotated fields are its options; it is frozen, so it holds no state.

    The docstring's first line is the pass's *before → after*.
    """

    name: ClassVar[str] = ""
    phase: ClassVar[Phase] = "any"
    requires: ClassVar[tuple[Property, ...]] = ()
    """What must hold of a model for this pass to run."""
    forbids: ClassVar[tuple[Property, ...]] = ()
    """What must not."""
    ensures: ClassVar[tuple[Property, ...]] = ()
    """What holds once this pass has run."""
    invalidates: ClassVar[tuple[Property, ...]] = ()
    """What held before, perhaps, and holds no longer."""
    preserves: ClassVar[tuple[type[Analysis], ...]] = ()
    """Analyses that stay true of a graph that this pass has changed."""
    counterpart: ClassVar[str | None] = None
    """For an inference pass: the pass that does the same in a training pipeline."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            raise PassError(
                f"the pass {cls.__qualname__} has an __init__ of its own",
                hint="its annotated fields are its options, which __post_init__ may check",
            )
        written = vars(cls).get("__doc__")
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        # What dataclass writes in its place, a signature, says nothing of before and after.
        cls.__doc__ = written or ""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        """Transform `model` in place and return the number of changes (usually `rewriter.changes`)."""
        raise NotImplementedError

    @classmethod
    def unwritten(cls) -> str | None:
        """The method that a pass must have and this one has not; None if nothing is missing."""
        return "run" if cls.run is Pass.run else None

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(cls) or "").split("\n", 1)[0]

    def __str__(self) -> str:
        given = options.changed(self)
        if not given:
            return self.name
        return f"{self.name}{{{','.join(f'{k}={options.render(v)}' for k, v in given.items())}}}"

    @classmethod
    def conditions(cls) -> tuple[Condition, ...]:
        """What must and must not hold, by the phase and by declaration, each with what to do about it."""
        return (
            *_PHASES[cls.phase](cls),
            *(Condition(p, True, "`fuseline passes list` says which pass ensures it") for p in cls.requires),
            *(Condition(p, False, f"use {cls.name!r} before that, and once") for p in cls.forbids),
        )

    def check_applicable(self, model: Model) -> None:
        """Refuse, with the reason, a model this pass must not touch."""
        for condition in self.conditions():
            if model.has(condition.property) != condition.holds:
                raise PassError(condition.message(self.name), hint=condition.hint)


@dataclasses.dataclass(frozen=True)
class Condition:
    """A property that must or must not hold."""

    property: Property
    holds: bool
    hint: str
    phase: Phase = "any"

    def message(self, name: str) -> str:
        if self.phase == "inference":
            return f"pass {name!r} is for inference, but the model is a training graph"
        if self.phase == "pre-gradient":
            return f"pass {name!r} must run before the gradient is built, but the model is differentiated"
        if self.phase == "post-gradient":
            return f"pass {name!r} works on a differentiated graph, and this one is not"
        if self.holds:
            return f"pass {name!r} requires {self.property.value!r}, which no earlier pass ensured"
        return f"pass {name!r} cannot follow what makes a model {self.property.value!r}"


def _inference(kind: type[Pass]) -> tuple[Condition, ...]:
    instead = f"use {kind.counterpart!r} instead" if kind.counterpart else "leave it out"
    return (Condition(Property.TRAINING, False, instead, "inference"),)


def _before(kind: type[Pass]) -> tuple[Condition, ...]:
    hint = "move it in front of 'differentiate'"
    return (Condition(Property.DIFFERENTIATED, False, hint, "pre-gradient"),)


def _after(kind: type[Pass]) -> tuple[Condition, ...]:
    hint = "put 'differentiate' in front of it"
    return (Condition(Property.DIFFERENTIATED, True, hint, "post-gradient"),)


_PHASES = {"any": lambda kind: (), "inference": _inference, "pre-gradient": _before, "post-gradient": _after}
