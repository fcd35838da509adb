"""The pass manager: runs a pipeline step by step, checks what passes claim, and tells the observers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fuseline.engine.analysis.analyses import Analyses
from fuseline.engine.authoring import raised_at, written_at
from fuseline.engine.collector import collector_paused
from fuseline.engine.errors import (
    FuselineError,
    GateFailed,
    ModelError,
    PassError,
    PipelineError,
    did_you_mean,
)
from fuseline.engine.model import Model
from fuseline.engine.observer import Observer
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline, Repeat, Stage
from fuseline.engine.plurals import counted
from fuseline.engine.rewriting.rewriter import Rejection, Rewrite, Rewriter
from fuseline.engine.validation import check_wiring

__all__ = ["PassManager", "PassRecord", "Result", "Step"]


@dataclass(frozen=True)
class Step:
    """One execution of one pass; `index` counts executions from 1."""

    index: int
    pass_: Pass

    @property
    def name(self) -> str:
        return self.pass_.name


@dataclass
class PassRecord:
    """What one execution did."""

    step: Step
    changes: int = 0
    seconds: float = 0.0
    nodes_before: int = 0
    nodes_after: int = 0
    rewrites: list[Rewrite] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    statistics: dict[str, int] = field(default_factory=dict)
    error: FuselineError | None = None
    reverted: bool = False
    verification: str | None = None
    """What a gate found that let the pass through, in words."""
    difference: float | None = None
    """How far results moved all the same, as a part of the largest; None where nothing was compared."""

    @property
    def name(self) -> str:
        return self.step.name


@dataclass(repr=False)
class Result:
    """The transformed model and the record of every pass."""

    model: Model
    records: list[PassRecord]

    @property
    def changes(self) -> int:
        return sum(r.changes for r in self.records)

    def __repr__(self) -> str:
        return f"<Result: {counted(self.changes, 'change')} in {counted(len(self.records), 'pass')}>"

    def _repr_html_(self) -> str:
        from fuseline.engine.display import result_html

        return result_html(self)

    @property
    def reverted(self) -> list[PassRecord]:
        return [r for r in self.records if r.reverted]


class _Stop(Exception):
    """Ends the run after the pass named by `stop_after`."""


class PassManager:
    """Runs one pipeline. `limits` caps the number of rewrites of a step (by index), which bisection uses."""

    def __init__(
        self,
        pipeline: Pipeline,
        observers: Sequence[Observer] = (),
        *,
        disable: Sequence[str] = (),
        stop_after: str | None = None,
        revert_failing: bool = False,
        limits: dict[int, int] | None = None,
        in_place: bool = False,
    ) -> None:
        known = {p.name for p in pipeline.passes()}
        for name in (*disable, *([stop_after] if stop_after else [])):
            if name not in known:
                raise PipelineError(f"the pipeline has no pass {name!r}", hint=did_you_mean(name, known))
        self.pipeline = pipeline
        self.observers = observers
        self.disable = set(disable)
        self.stop_after = stop_after
        self.revert_failing = revert_failing
        self.limits = limits or {}
        self.in_place = in_place

    def run(self, model: Model) -> Result:
        with collector_paused():
            return self._run(model if self.in_place else model.clone())

    def _run(self, model: Model) -> Result:
        self._model = model
        self._records: list[PassRecord] = []
        self._fingerprint = self._model.fingerprint()
        self._analyses = Analyses(model)
        try:
            self._tell(lambda o: o.started(self._model))
            self._run_stages()
            result = Result(self._model, self._records)
            self._tell(lambda o: o.finished(result))
        except BaseException:
            self._tell(lambda o: o.stopped())
            raise
        return result

    def _run_stages(self) -> None:
        try:
            for stage in self.pipeline.stages:
                self._run_stage(stage)
        except _Stop:
            pass

    def _run_stage(self, stage: Stage) -> int:
        if isinstance(stage, Repeat):
            return self._run_repeat(stage)
        if stage.name in self.disable:
            return 0
        record = self._run_pass(Step(len(self._records) + 1, stage))
        if stage.name == self.stop_after:
            raise _Stop
        return record.changes

    def _run_repeat(self, group: Repeat) -> int:
        total = quiet = 0
        for _ in range(group.at_most):
            for stage in group.stages:
                changes = self._run_stage(stage)
                total += changes
                quiet = 0 if changes else quiet + 1
                # Every stage has now seen the model as it is, though perhaps not within one round.
                if quiet == len(group.stages) and group.until == "unchanged":
                    return total
        return total

    def _run_pass(self, step: Step) -> PassRecord:
        nodes = self._records[-1].nodes_after if self._records else _count(self._model)
        record = PassRecord(step, nodes_before=nodes, nodes_after=nodes)
        self._records.append(record)
        backup = self._model.clone() if self.revert_failing else None
        backup_fingerprint = self._fingerprint
        self._tell(lambda o: o.before(step, self._model))
        try:
            self._execute(record)
            self._tell(lambda o: o.after(record, self._model))
        except FuselineError as error:
            record.error = error
            self._tell(lambda o: o.failed(record, self._model))
            if backup is None or not isinstance(error, GateFailed | PassError):
                raise
            self._model, self._fingerprint = backup, backup_fingerprint
            record.changes, record.reverted = 0, True
            record.nodes_after = record.nodes_before
        return record

    def _execute(self, record: PassRecord) -> None:
        step, model = record.step, self._model
        step.pass_.check_applicable(model)
        if self._analyses.model is not model:  # an earlier pass was reverted
            self._analyses = Analyses(model)
        rewriter = Rewriter(
            model,
            step.name,
            limit=self.limits.get(step.index),
            analyses=self._analyses,
            preserves=step.pass_.preserves,
        )
        # Shared, so that a pass that crashes has left word of how far it came.
        record.rewrites, record.rejections = rewriter.rewrites, rewriter.rejections
        started = time.perf_counter()
        try:
            record.changes = step.pass_.run(model, rewriter)
        except FuselineError as error:
            place = raised_at(error)
            error.add_note(f"in pass {step.index} {step.name!r}{f', at {place}' if place else ''}")
            raise
        except (Exception, SystemExit) as error:
            place = raised_at(error)
            raise PassError(
                f"pass {step.name!r} (step {step.index}) crashed{f' at {place}' if place else ''}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(record.changes, int):
            raise _fault(
                step,
                f"returned {record.changes!r}, not how much it changed",
                "end it with `return rewriter.changes`",
            )
        record.seconds = time.perf_counter() - started
        record.statistics = dict(rewriter.statistics)
        record.nodes_after = _count(model) if self._check_claim(record) else record.nodes_before
        model.undo(*step.pass_.invalidates)
        model.establish(*step.pass_.ensures)

    def _check_claim(self, record: PassRecord) -> bool:
        """Whether the pass changed the graph, which it must have said."""
        fingerprint = self._model.fingerprint()
        really = fingerprint != self._fingerprint
        if really:
            self._analyses.forget(record.step.pass_.preserves)
        self._fingerprint = fingerprint
        if really and not record.changes:
            raise _fault(record.step, "changed the graph but reported no change")
        if record.changes and not really:
            raise _fault(record.step, f"reported {counted(record.changes, 'change')} but changed nothing")
        if really and not _is_ours(record.step.pass_):
            try:
                check_wiring(self._model)
            except ModelError as error:
                raise _fault(
                    record.step, f"left a graph that cannot run: {error.message}", error.hint
                ) from error
        return really

    def _tell(self, event: Callable[[Observer], None]) -> None:
        for observer in self.observers:
            event(observer)


def _fault(step: Step, message: str, hint: str | None = None) -> PassError:
    error = PassError(f"pass {step.name!r} {message}", hint=hint)
    place = written_at(type(step.pass_))
    error.add_note(f"in pass {step.index} {step.name!r}{f', at {place}' if place else ''}")
    return error


def _is_ours(pass_: Pass) -> bool:
    """Whether the pass is of the library itself, whose tests spare every run what others are asked."""
    return type(pass_).__module__.startswith("fuseline.")


def _count(model: Model) -> int:
    return sum(len(graph) for graph in model.graphs())
