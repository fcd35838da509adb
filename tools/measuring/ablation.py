"""What each pass bought: the graph without it against the graph with all of them, in turns.

A pass is left out wherever it stands in the pipeline. The memory is that of a simulated run, which is exact
and needs no quiet machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuseline.engine.errors import FuselineError
from fuseline.engine.manager import Result
from fuseline.engine.memory import Simulation, at_sizes
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property
from fuseline.engine.shapes.dims import dims_of
from fuseline.kernels.records import register_records
from fuseline.tools.measuring.contenders import OURS, Contenders, check_agreement, release_sessions
from fuseline.tools.measuring.intervals import FEWEST, Interval, differences, ratios
from fuseline.tools.measuring.steps import Results, Step
from fuseline.tools.measuring.subject import Subject
from fuseline.tools.measuring.timing import take_turns
from fuseline.tools.progress import Activity

__all__ = ["Ablation", "ablate"]

WITHOUT = "without"
UNNOTICED = 0.02
"""Where the first rounds enclose no difference within so narrow bounds, no more rounds are spent on it."""


@dataclass(frozen=True)
class Ablation:
    """One pass: what the graph without it takes more; `note` says why nothing was measured."""

    name: str
    changes: int
    note: str = ""
    seconds: Interval | None = None
    ratio: Interval | None = None
    memory: int = 0
    nodes: int = 0
    rounds: int = 0

    @property
    def bought(self) -> float:
        """Seconds, zero where the measurement does not tell them from none."""
        return 0.0 if self.seconds is None or self.seconds.holds(0.0) else self.seconds.middle

    @property
    def middle(self) -> float:
        return 0.0 if self.seconds is None else self.seconds.middle

    def to_json(self) -> dict[str, Any]:
        measured = self.seconds is not None
        return {
            "pass": self.name,
            "changes": self.changes,
            "note": self.note,
            "seconds": self.seconds.to_json() if self.seconds else None,
            "ratio": self.ratio.to_json() if self.ratio is not None and self.ratio.meaningful else None,
            "memory_bytes": self.memory if measured else None,
            "nodes": self.nodes if measured else None,
            "rounds": self.rounds,
        }


def ablate(
    subject: Subject, pipeline: Pipeline, plain: Model, only: Sequence[str], *, rounds: int, tell: Activity
) -> list[Ablation]:
    """Every pass that changed something (of those named, if any are), the one that bought most first."""
    register_records()  # without them the sizes of what native operators make are not known
    whole = pipeline.run(plain)
    subject.keep(OURS, whole.model)
    changes = _changes(whole)
    chosen = [name for name in changes if not only or name in only]
    rows = []
    with Contenders(subject) as contenders:
        bench = _Bench(subject, pipeline, plain, whole.model, rounds, contenders)
        for position, name in enumerate(chosen):
            tell(f"{position + 1} of {len(chosen)}: without {name}")
            tell.count(position, len(chosen))
            rows.append(bench.measure(name, changes[name]))
    return sorted(rows, key=lambda row: (bool(row.note), -row.bought, -row.middle, -row.memory))


@dataclass
class _Bench:
    """The graph with every pass stays; one without a pass takes turns with it and goes."""

    subject: Subject
    pipeline: Pipeline
    plain: Model
    whole: Model
    rounds: int
    contenders: Contenders
    _peak: int = field(init=False)
    _ours: Step = field(init=False)
    _result: Results = field(init=False)

    def __post_init__(self) -> None:
        self._peak = _simulated(self.whole, self.subject)
        self._ours = self.contenders.build(OURS)
        # Of the weights that came: later steps have trained them.
        self._result = self._ours()

    def measure(self, name: str, changes: int) -> Ablation:
        try:
            model = self.pipeline.run(self.plain, disable=[name]).model
            if _purpose(model) != _purpose(self.whole):
                return Ablation(name, changes, "needed: without it the graph does not do the same work")
            if model.fingerprint() == self.whole.fingerprint():
                return Ablation(name, changes, "the other passes do the same without it")
            self.subject.keep(WITHOUT, model)
            return self._compared(name, changes, model)
        except FuselineError as error:
            return Ablation(name, changes, f"needed: {error.message}")

    def _compared(self, name: str, changes: int, model: Model) -> Ablation:
        steps = {OURS: self._ours, WITHOUT: self.contenders.build(WITHOUT)}
        check_agreement({OURS: self._result, WITHOUT: steps[WITHOUT]()})
        samples = self._rounds(steps)
        del steps
        release_sessions()
        return Ablation(
            name,
            changes,
            seconds=differences(samples[WITHOUT], samples[OURS]),
            ratio=ratios(samples[WITHOUT], samples[OURS]),
            rounds=len(samples[OURS]),
            memory=_simulated(model, self.subject) - self._peak,
            nodes=_count(model.nodes()) - _count(self.whole.nodes()),
        )

    def _rounds(self, steps: dict[str, Step]) -> dict[str, list[float]]:
        """All rounds, unless the first ones already hold the difference within what nobody would notice."""
        samples = take_turns(steps, min(FEWEST, self.rounds))
        ratio = ratios(samples[WITHOUT], samples[OURS])
        if ratio.holds(1.0) and ratio.high - ratio.low <= UNNOTICED:
            return samples
        more = take_turns(steps, self.rounds - len(samples[OURS]))
        return {name: [*samples[name], *more[name]] for name in samples}


def _changes(result: Result) -> dict[str, int]:
    """Pass → its changes, in the order of the first."""
    found: dict[str, int] = {}
    for record in result.records:
        if record.changes:
            found[record.name] = found.get(record.name, 0) + record.changes
    return found


def _purpose(model: Model) -> tuple[bool, bool]:
    """What a step of the graph does besides computing its outputs."""
    return model.has(Property.DIFFERENTIATED), model.facts.training.optimizer is not None


def _simulated(model: Model, subject: Subject) -> int:
    """The peak of one run at the sizes of the batch, without what the caller holds."""
    sizes = {}
    for value in model.graph.inputs:
        array = subject.batch().get(str(value.name))
        for dim, size in zip(dims_of(value) or (), array.shape if array is not None else (), strict=False):
            if isinstance(dim, str):
                sizes[dim] = size
    return Simulation(at_sizes(model, sizes)).peak


def _count(items: Iterable[object]) -> int:
    return sum(1 for _ in items)
