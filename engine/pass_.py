"""The pass: a named, documented, typed transformation of a model."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform

from fuseline.engine import options
from fuseline.engine.errors import PassError

if TYPE_CHECKING:
    from fuseline.engine.model import Model
    from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["Pass", "Phase"]

Phase = Literal["any", "inference", "pre-gradient", "post-gradient"]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Pass:
    """Base of all passes. A subclass's annotated fields are its options; it is frozen, so it holds no state.

    The docstring's first line is the pass's *before → after*.
    """

    name: ClassVar[str] = ""
    phase: ClassVar[Phase] = "any"
    requires: ClassVar[tuple[str, ...]] = ()
    """Properties an earlier pass must have established."""
    ensures: ClassVar[tuple[str, ...]] = ()
    """Properties that hold once this pass has run."""
    counterpart: ClassVar[str | None] = None
    """For an inference pass: the pass that does the same in a training pipeline."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        """Transform `model` in place and return the number of changes (usually `rewriter.changes`)."""
        raise NotImplementedError

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(cls) or "").split("\n", 1)[0]

    def __str__(self) -> str:
        given = options.changed(self)
        if not given:
            return self.name
        return f"{self.name}{{{','.join(f'{k}={options.render(v)}' for k, v in given.items())}}}"

    def check_applicable(self, model: Model) -> None:
        """Refuse, with the reason, a model this pass must not touch."""
        established = model.established()
        if self.phase == "inference" and model.training:
            instead = f"use {self.counterpart!r} instead" if self.counterpart else "leave it out"
            raise PassError(
                f"pass {self.name!r} is for inference, but the model is a training graph", hint=instead
            )
        if self.phase == "pre-gradient" and "differentiated" in established:
            raise PassError(
                f"pass {self.name!r} must run before the gradient is built, but the model is differentiated",
                hint="move it in front of 'differentiate'",
            )
        if self.phase == "post-gradient" and "differentiated" not in established:
            raise PassError(
                f"pass {self.name!r} works on a differentiated graph, and this one is not",
                hint="put 'differentiate' in front of it",
            )
        missing = [p for p in self.requires if p not in established]
        if missing:
            raise PassError(
                f"pass {self.name!r} requires {', '.join(missing)}, which no earlier pass ensured",
                hint="run `fuseline passes list` to see which pass ensures it",
            )
