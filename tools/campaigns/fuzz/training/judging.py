"""Judging one trainable case: loss and gradients behind the pipeline against torch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import numpy_helper

from fuseline.engine.errors import FuselineError
from fuseline.engine.manager import PassRecord
from fuseline.engine.model import Model
from fuseline.engine.observer import Observer
from fuseline.engine.parameters import Parameter
from fuseline.engine.properties import Property
from fuseline.engine.tolerance import Tolerance
from fuseline.engine.training.gradients import LOSS_GRADIENT
from fuseline.engine.verification.compare import compare
from fuseline.engine.verification.gradients import original_gradients, with_gradients
from fuseline.engine.verification.sensitivity import nudged, slack_of
from fuseline.tools.campaigns.fuzz.cases import Case, Feeds
from fuseline.tools.campaigns.fuzz.judge import Failing, Verdict, load, resolve
from fuseline.tools.campaigns.fuzz.probe import open_session
from fuseline.tools.campaigns.fuzz.training.torch_graph import Unknown, loss_and_gradients

__all__ = ["judge_training"]

Array = npt.NDArray[Any]

# Sums of float32 in another order; a gradient that cancels has the scale of the others, and one that is the
# difference of a probability from 1 that of the 1.
_TOLERANCE = Tolerance(relative=1e-3, absolute=0.0, scaled=1e-4, floor=1e-5)
_SCALE_OF_LARGEST = 1.0
_NUDGE = 1e-6
_NUDGES = 3
_LARGEST = 1e6  # beyond, float32 says little


@dataclass
class _Wanted:
    """What torch makes of the graph at one set of inputs, and how far rounding moves that."""

    feed: Feeds
    results: dict[str, Array]
    others: list[dict[str, Array]]


def judge_training(case: Case, announce: Callable[[str], None] = lambda _: None) -> Verdict:
    """Run the graph in torch, then behind the pipeline in ONNX Runtime."""
    announce("original")
    torch.set_num_threads(1)
    model = onnx.ModelProto.FromString(case.model)
    loss = model.graph.output[0].name
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name in case.trainable}
    try:
        wanted = [w for feed in case.feeds if (w := _in_torch(model, weights, feed, loss)) is not None]
        if not wanted or not weights:
            return Verdict("unusable", "no finite gradient")
        if problem := _forward(case.model, wanted, loss):
            return Verdict("unusable", problem)
    except Unknown as error:
        return Verdict("unusable", f"torch has no {error}")
    announce("transform")
    pipeline, failing = resolve(case.pipeline), Failing()
    try:
        result = pipeline.run(_trainable(case, weights), [failing])
    except FuselineError as error:
        if failing.name == "check-trainable":
            return Verdict("unusable", f"refused: {error.message}")
        return Verdict("error", f"{type(error).__name__}: {error.message}", failing.name)
    fired = tuple(dict.fromkeys(r.name for r in result.records if r.changes))
    announce("transformed")
    problem = _differs(result.model, wanted, loss)
    if not problem:
        return Verdict("ok", fired=fired, sets=len(wanted))
    culprit = _Culprit(lambda after: bool(_differs(after, wanted, loss)))
    resolve(case.pipeline).run(_trainable(case, weights), [culprit])
    transformed = result.model.to_proto().SerializeToString()
    return Verdict("wrong", problem, culprit.name, fired, len(wanted), transformed)


def _in_torch(model: onnx.ModelProto, weights: Feeds, feed: Feeds, loss: str) -> _Wanted | None:
    results = _results(model, weights, feed, loss)
    if any(not np.isfinite(r).all() or np.abs(r).max(initial=0) > _LARGEST for r in results.values()):
        return None
    others = [
        _results(model, nudged(weights, _NUDGE, seed), nudged(feed, _NUDGE, seed + 100), loss)
        for seed in range(_NUDGES)
    ]
    others.append(_results(model, weights, feed, loss, wide=True))
    return _Wanted(feed, results, others)


def _results(
    model: onnx.ModelProto, weights: Feeds, feed: Feeds, loss: str, *, wide: bool = False
) -> dict[str, Array]:
    value, gradients = loss_and_gradients(model, weights, feed, loss, wide=wide)
    return {name: np.asarray(a, np.float32) for name, a in {"loss": value, **gradients}.items()}


def _forward(model: bytes, wanted: list[_Wanted], loss: str) -> str:
    """Why torch's gradients are no measure: the runtime does not make the same loss of the graph itself."""
    for each in wanted:
        try:
            found = open_session(model).run([loss], each.feed)[0]
        except Exception as error:  # ONNX Runtime raises a dozen unrelated types
            return f"the runtime refuses it: {str(error).splitlines()[0]}"
        if mismatch := _mismatch("loss", each, found, 0.0):
            return f"torch and the runtime disagree already: {mismatch}"
    return ""


def _trainable(case: Case, weights: Feeds) -> Model:
    model = load(case.model)
    for name, array in weights.items():
        model.parameters.add(Parameter(name, name, array.shape))
    model.establish(Property.TRAINING)
    return model


def _differs(model: Model, wanted: list[_Wanted], loss: str) -> str:
    """What differs first: the loss, a gradient, or whether the graph runs at all."""
    try:
        whole = with_gradients(model)
        session = open_session(whole.to_proto().SerializeToString())
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        return f"it does not load: {str(error).splitlines()[0]}"
    names = [o.name for o in session.get_outputs()]
    known = {i.name for i in session.get_inputs()}
    for each in wanted:
        feed = {k: v for k, v in each.feed.items() if k in known} | {LOSS_GRADIENT: np.ones((), np.float32)}
        try:
            outputs = dict(zip(names, session.run(names, feed), strict=True))
        except Exception as error:
            return f"it does not run: {str(error).splitlines()[0]}"
        found = {"loss": outputs[loss], **original_gradients(outputs, whole)}
        scale = _SCALE_OF_LARGEST * max(float(np.abs(g).max(initial=0)) for g in each.results.values())
        for name, expected in each.results.items():
            problem = _mismatch(name, each, found.get(name, np.zeros_like(expected)), scale)
            if problem:
                return f"{problem} at {', '.join(f'{k}{list(v.shape)}' for k, v in each.feed.items())}"
    return ""


def _mismatch(name: str, wanted: _Wanted, found: Array, scale: float) -> str:
    expected = wanted.results[name]
    slack = slack_of(expected, [o[name] for o in wanted.others])
    problem = compare(name, expected, found, _TOLERANCE, scale=scale, slack=slack)
    return "" if problem is None else str(problem)


class _Culprit(Observer):
    """Remembers the first pass after which the gradients are wrong."""

    def __init__(self, wrong: Callable[[Model], bool]) -> None:
        self.wrong = wrong
        self.name = ""

    def after(self, record: PassRecord, model: Model) -> None:
        if record.changes and not self.name and self.wrong(model):
            self.name = record.name
