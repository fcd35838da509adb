"""Observers watch a pipeline run; dumps, timing, verification and expectations are all of this kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuseline.engine.manager import PassRecord, Result, Step
    from fuseline.engine.model import Model

__all__ = ["Observer"]


class Observer:
    """Override what you need. Raise GateFailed in `after` to fail the pass that just ran."""

    def started(self, model: Model) -> None:
        """The pipeline is about to run on this model."""

    def before(self, step: Step, model: Model) -> None:
        """The pass of `step` is about to run."""

    def after(self, record: PassRecord, model: Model) -> None:
        """The pass has run; `record.changes` says whether it did anything."""

    def failed(self, record: PassRecord, model: Model) -> None:
        """The pass raised, or failed a gate; `record.error` says how. `model` is the state it left."""

    def finished(self, result: Result) -> None:
        """All passes have run."""

    def stopped(self) -> None:
        """The run ends before that: something failed, or somebody interrupted it."""
