"""Bisection: the first pass that breaks a model's results, then the single rewrite in it.

Both searches are binary. Passes are searched by stopping the pipeline after the k-th; rewrites by limiting
how many the pass is permitted (`Rewriter.permit`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from fuseline.engine.diff import ModelDiff, diff
from fuseline.engine.errors import FuselineError, PassError
from fuseline.engine.manager import PassRecord, Step
from fuseline.engine.model import Model
from fuseline.engine.observer import Observer
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.rewriting.rewriter import Rewrite
from fuseline.engine.verification import Report, Results, Verifier

__all__ = ["Culprit", "bisect"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Culprit:
    """What was found. `rewrite` is None if the pass breaks the model without asking for a single rewrite."""

    step: Step
    rewrite: Rewrite | None
    position: int
    """Which rewrite of the pass it is, from 1."""
    total: int
    report: Report
    before: Model
    """The model as the pass found it."""
    good: Model
    """The model with all rewrites before the culprit."""
    diff: ModelDiff
    """What the culprit alone changed."""


@dataclass
class _State:
    """The model after some step, the record of that step, and the error if the pass raised one."""

    model: Model
    record: PassRecord | None
    error: FuselineError | None = None


class _Reached(Exception):
    """Ends a pipeline run at the step that was asked for."""


class _StopAt(Observer):
    def __init__(self, index: int) -> None:
        self.index = index
        self.state: _State | None = None

    def after(self, record: PassRecord, model: Model) -> None:
        if record.step.index == self.index:
            self.state = _State(model, record)
            raise _Reached

    def failed(self, record: PassRecord, model: Model) -> None:
        self.state = _State(model, record, record.error)


class _FirstGradients(Observer):
    """The results at the first state that can be differentiated."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self.results: Results | None = None
        self.index = 0

    def after(self, record: PassRecord, model: Model) -> None:
        if not record.changes:
            return
        results = self.verifier.measure(model)
        if results.gradients is not None:
            self.results, self.index = results, record.step.index
            raise _Reached


class _Changed(Observer):
    """The steps that change something, up to one that raises."""

    def __init__(self) -> None:
        self.records: list[PassRecord] = []

    def after(self, record: PassRecord, model: Model) -> None:
        if record.changes:
            self.records.append(record)

    def failed(self, record: PassRecord, model: Model) -> None:
        self.records.append(record)


def bisect(
    model: Model,
    pipeline: Pipeline,
    verifier: Verifier,
    *,
    tell: Callable[[str], None] = lambda message: None,
) -> Culprit | None:
    """The culprit, or None if the whole pipeline keeps the results. `tell` gets a line per trial."""
    return _Bisection(model, pipeline, verifier, tell).find()


class _Bisection:
    def __init__(
        self, model: Model, pipeline: Pipeline, verifier: Verifier, tell: Callable[[str], None]
    ) -> None:
        self.model, self.pipeline, self.verifier, self.tell = model, pipeline, verifier, tell
        self.reference = verifier.measure(model)
        self.differentiable_from = 0
        if verifier.quantity == "gradients" and self.reference.gradients is None:
            self.reference.gradients = self._first_gradients()

    def _first_gradients(self) -> list[dict[str, Array]]:
        """A graph fresh from the exporter cannot be differentiated; the first that can is the reference."""
        watcher = _FirstGradients(self.verifier)
        with suppress(_Reached, PassError):
            self.pipeline.run(self.model, [watcher])
        if watcher.results is None or watcher.results.gradients is None:
            raise FuselineError(
                f"no state of this pipeline can be differentiated: {self.reference.no_gradients}",
                hint="start with the passes that prepare for the gradient, or bisect outputs",
            )
        self.differentiable_from = watcher.index
        return watcher.results.gradients

    def find(self) -> Culprit | None:
        records = self._changing_steps()
        if not records:
            return None
        if self._report(self._state(records[-1].step.index)).ok:
            self.tell(f"all {len(records)} changing passes keep the {self.verifier.quantity}")
            return None
        found = self._first_bad(len(records), lambda k: self._try_pass(records[k - 1]))
        record = records[found - 1]
        before = self._state(records[found - 2].step.index).model if found > 1 else self.model
        return self._find_rewrite(record.step, before)

    def _changing_steps(self) -> list[PassRecord]:
        watcher = _Changed()
        try:
            self.pipeline.run(self.model, [watcher])
        except PassError as error:
            self.tell(f"the pipeline stops: {error.message}")
        return watcher.records

    def _first_bad(self, count: int, good: Callable[[int], bool]) -> int:
        """The first k in 1…count that is bad, given that `count` is."""
        low, high = 0, count
        while high - low > 1:
            middle = (low + high) // 2
            if good(middle):
                low = middle
            else:
                high = middle
        return high

    def _try_pass(self, record: PassRecord) -> bool:
        ok = self._report(self._state(record.step.index)).ok
        self.tell(f"up to pass {record.step.index} {record.name}: {'good' if ok else 'bad'}")
        return ok

    def _find_rewrite(self, step: Step, before: Model) -> Culprit:
        total = self._rewrites(step)
        nothing = self._state(step.index, limit=0)
        if total == 0 or not self._report(nothing).ok:
            # The pass raised before any rewrite, or changes the graph without asking for permission.
            return self._culprit(step, before, before, self._state(step.index), 0, total)

        def good(limit: int) -> bool:
            ok = self._report(self._state(step.index, limit=limit)).ok
            self.tell(f"{step.name} with {limit} of {total} rewrites: {'good' if ok else 'bad'}")
            return ok

        found = self._first_bad(total, good)
        last_good = self._state(step.index, limit=found - 1).model
        bad = self._state(step.index, limit=found)
        return self._culprit(step, before, last_good, bad, found, total)

    def _rewrites(self, step: Step) -> int:
        record = self._state(step.index).record
        return len(record.rewrites) if record is not None else 0

    def _culprit(
        self, step: Step, before: Model, good: Model, bad: _State, position: int, total: int
    ) -> Culprit:
        rewrites = bad.record.rewrites if bad.record is not None else []
        return Culprit(
            step=step,
            rewrite=rewrites[position - 1] if 0 < position <= len(rewrites) else None,
            position=position,
            total=total,
            report=self._report(bad),
            before=before,
            good=good,
            diff=diff(good, bad.model),
        )

    def _state(self, index: int, *, limit: int | None = None) -> _State:
        """The model after step `index`, whose rewrites may be limited."""
        stop = _StopAt(index)
        try:
            self.pipeline.run(self.model, [stop], limits={} if limit is None else {index: limit})
        except _Reached:
            pass
        except PassError:
            assert stop.state is not None
        assert stop.state is not None, f"the pipeline did not reach step {index} again"
        return stop.state

    def _report(self, state: _State) -> Report:
        if state.error is not None:
            return Report(error=state.error.message)
        reference = self.reference
        if state.record is not None and state.record.step.index < self.differentiable_from:
            reference = Results(reference.outputs)
        return self.verifier.check(reference, state.model)[0]
