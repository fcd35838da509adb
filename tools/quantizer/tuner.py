"""Accuracy-driven tuning: a ladder of plans, each tried and judged, the best so far always on disk."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from fuseline.engine.errors import FuselineError
from fuseline.engine.files import atomic_write
from fuseline.engine.model import Model
from fuseline.engine.plurals import counted
from fuseline.engine.quantization.sensitivity import sensitivity
from fuseline.passes.quantization.quantize_qdq import SWITCHES
from fuseline.tools.quantizer.config import Accuracy, Config
from fuseline.tools.quantizer.journal import Journal, Trial
from fuseline.tools.quantizer.left import Left, left_by_training, left_in_float
from fuseline.tools.quantizer.metrics import Metric, Predict, predictor
from fuseline.tools.quantizer.plan import Plan, make_plan
from fuseline.tools.quantizer.workshop import Workshop

__all__ = ["AwareTrainer", "Tuner"]

# Batches that sensitivity is measured on: noise shows on few.
_PROBES = 4
_AWARE = "training-aware"


class AwareTrainer(Protocol):
    """What the last rung needs of a `Trainer(…, quantize=…)`."""

    def train(self) -> Any: ...

    def save_onnx(self, path: Path) -> Path: ...


class _Finished(Exception):
    """Nothing better is to be found, or the budget is spent."""


@dataclass
class Tuner:
    """Climbs from the fastest plan to the most careful one until the criterion is met.

    dynamic → static → the worst nodes quantized by the run (mixed) or left in float → with a trainer,
    trained on grids. The result stands in `output` from the first trial on, replaced whenever a trial is
    better; an interruption loses nothing.
    """

    config: Config
    workshop: Workshop
    metric: Metric
    journal: Journal
    output: Path
    float_model: Predict
    trainer: AwareTrainer | None = None
    tell: Callable[[str], None] = lambda line: None
    _started: float = field(default_factory=time.monotonic)
    _tried: int = 0

    def run(self) -> bool:
        """Whether the criterion is met by the model that is now in `output`."""
        if self.journal.float_score is None:
            score = self.metric(self.float_model)
            if not math.isfinite(score):
                raise FuselineError(
                    f"the metric gives {score} for the float model, so that nothing can be held to it",
                    hint="a metric is a number, and higher is better",
                )
            self.journal.set_float_score(score)
        self.tell(f"float: {self.journal.float_score:.4f}; to be kept: {self.bar:.4f}")
        best = self.journal.best()
        if best is not None and not self.output.exists():
            self._restore(best)
        try:
            self._climb()
        except _Finished as reason:
            self.tell(str(reason))
        except KeyboardInterrupt:
            self.tell("interrupted; the best model so far stays")
            if self.journal.best() is None:
                raise
        best = self.journal.best()
        assert best is not None
        return best.met

    @property
    def bar(self) -> float:
        """The least score that will do."""
        accuracy = self.config.accuracy
        assert isinstance(accuracy, Accuracy)
        before = self.journal.float_score
        assert before is not None
        loss = accuracy.tolerable_loss
        return before - (abs(before) * loss if accuracy.criterion == "relative" else loss)

    @property
    def _trained(self) -> Path:
        return self.workshop.folder / "aware.onnx"

    # -- the ladder

    def _climb(self) -> None:
        plans = self._first_rungs()
        for plan in plans:
            if self._try(plan, f"{plan.mode}, {plan.format}").met:
                return
        scored = [(self._find(p), p) for p in plans]
        _, base = max(scored, key=lambda pair: pair[0].score if pair[0] else float("-inf"))
        worst = list(self._sensitivity(base))
        self._exclude(base, worst)
        if self.trainer is not None:
            self._train(self.trainer)

    def _first_rungs(self) -> list[Plan]:
        if self.config.mode != "auto":
            return [make_plan(self.config)]
        plans = []
        for mode in ("dynamic", "static"):
            if mode == "static" and self.workshop.calibration is None:
                continue
            try:
                plans.append(make_plan(self.config, mode))
            except FuselineError as error:
                self.tell(f"{mode}: {error.message}")
        if not plans:
            raise FuselineError("no mode fits the target and the data", hint="give calibration data")
        return plans

    def _exclude(self, base: Plan, worst: list[str]) -> None:
        """More and more of the worst nodes in float; then, between the last two numbers, as few as do."""
        count, short = 1, 0
        while True:
            count = min(count, len(worst))
            if not count:
                self.tell("there is no node whose exclusion could help")
                return
            if self._try_without(base, worst[:count]):
                break
            if count == len(worst):
                self.tell(f"even without its {count} nodes the model does not reach the criterion")
                return
            short, count = count, count * 2
        while count - short > 1:
            middle = (count + short) // 2
            if self._try_without(base, worst[:middle]):
                count = middle
            else:
                short = middle

    def _try_without(self, base: Plan, nodes: list[str]) -> bool:
        """The nodes quantized by the run if that is possible and enough, else in float."""
        count = counted(len(nodes), "node")
        if base.mode == "static" and base.format != "qdq" and base.target.dynamic:
            mixed = base.without(nodes, dynamic=True)
            if self._try(mixed, f"static, {count} dynamic").met:
                return True
        return self._try(base.without(nodes), f"{base.mode}, {count} in float").met

    def _train(self, trainer: AwareTrainer) -> None:
        """Training may keep in integers what had to be left in float so far."""
        recipe = {"mode": _AWARE}
        if self.journal.find(recipe) is not None:
            return
        self._check_budget()
        began = time.monotonic()
        trainer.train()
        model = Model.load(trainer.save_onnx(self._trained))
        self._judge(recipe, _AWARE, model, left_by_training(model), began)

    def _sensitivity(self, plan: Plan) -> dict[str, float]:
        path = self.workshop.folder / f"sensitivity-{plan.mode}-{plan.format}.json"
        if path.exists():
            known: dict[str, float] = json.loads(path.read_text())
            return known
        batches = self.workshop.calibration or self.workshop.fallback
        assert batches is not None
        table = self.workshop.table_of(plan)
        prepared = self.workshop.prepared(plan)
        progress = self.workshop.progress
        found = sensitivity(
            prepared,
            plan.switched(table),
            SWITCHES,
            list(batches.first(_PROBES).inputs()),
            progress=None if progress is None else lambda done, total: progress("sensitivity", done, total),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(found, indent=1))
        return found

    # -- one trial

    def _try(self, plan: Plan, name: str) -> Trial:
        known = self._find(plan)
        if known is not None:
            return known
        self._check_budget()
        began = time.monotonic()
        result = self.workshop.quantized(plan)
        return self._judge(_recipe(plan), name, result.model, left_in_float(result), began)

    def _judge(self, recipe: dict[str, Any], name: str, model: Model, left: Left, began: float) -> Trial:
        score = self.metric(predictor(model))
        # A model that NaN is said of is the worst there is.
        score = -math.inf if math.isnan(score) else score
        self._tried += 1
        seconds = round(time.monotonic() - began, 3)
        trial = self._record(
            Trial(name, recipe, score, score >= self.bar, len(left.products), seconds, 0), model
        )
        self.tell(
            f"{name}: {score:.4f} ({score - (self.journal.float_score or 0):+.4f})"
            f"{', meets the criterion' if trial.met else ''}"
        )
        return trial

    def _record(self, trial: Trial, model: Model) -> Trial:
        """The model is on disk before the journal says so: an entry never promises what is not there."""
        before = self.journal.best()
        path = self.output.with_name(f".{self.output.name}.trial")
        model.save(path)
        trial = replace(trial, bytes=path.stat().st_size)
        path.unlink()
        if before is None or trial.rank > before.rank:
            model.save(self.output)
        self.journal.add(trial)
        return trial

    def plan_of(self, trial: Trial) -> Plan | None:
        """The plan that a trial was made by; None if it was trained."""
        recipe = trial.recipe
        if recipe["mode"] == _AWARE:
            return None
        plan = make_plan(self.config, recipe["mode"])
        exclude, dynamic = (tuple(recipe[k]) for k in ("exclude", "dynamic_nodes"))
        return replace(plan, exclude=exclude, dynamic_nodes=dynamic)

    def _restore(self, best: Trial) -> None:
        """The model of a journal whose output was removed, made again from its recipe."""
        plan = self.plan_of(best)
        model = self.workshop.quantized(plan).model if plan is not None else Model.load(self._trained)
        model.save(self.output)

    def _check_budget(self) -> None:
        budget = self.config.budget
        if self._tried >= budget.trials:
            raise _Finished(f"the budget of {budget.trials} trials is spent")
        # The first trial is always made: a budget never ends with nothing.
        if self.journal.trials and time.monotonic() - self._started >= budget.time:
            raise _Finished(f"the budget of {budget.time:g} s is spent")

    def _find(self, plan: Plan) -> Trial | None:
        return self.journal.find(_recipe(plan))


def _recipe(plan: Plan) -> dict[str, Any]:
    return {
        "mode": plan.mode,
        "format": plan.format,
        "exclude": list(plan.exclude),
        "dynamic_nodes": list(plan.dynamic_nodes),
    }
