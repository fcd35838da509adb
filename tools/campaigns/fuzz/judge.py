"""Judging one case: the graph as it is against the graph that came out of the pipeline."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from fuseline.engine.errors import FuselineError, root_cause
from fuseline.engine.manager import PassRecord
from fuseline.engine.model import Model
from fuseline.engine.observer import Observer
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.tolerance import tolerance_for
from fuseline.engine.verification.compare import compare
from fuseline.engine.verification.empty import ends_on, is_empty
from fuseline.engine.verification.sensitivity import nudged, slack_of
from fuseline.tools.campaigns.fuzz.cases import Case, Feeds
from fuseline.tools.campaigns.fuzz.probe import open_session
from fuseline.tools.campaigns.fuzz.standard import confirmed, runtime_errs

__all__ = ["FINDINGS", "Failing", "Verdict", "judge", "load", "resolve"]

FINDINGS = ("wrong", "fails", "unloadable", "error", "crash", "hang")
# Outputs are judged as if they reached this magnitude, as the verifier does.
_SCALE = 0.05
_NUDGES = 4
_NUDGE_BY_TYPE = {TensorProto.FLOAT16: 1e-3, TensorProto.BFLOAT16: 1e-2}
_NUDGE_QUANTIZED = 1e-4
_NUDGE = 1e-6
_QUANTIZERS = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul")

Outputs = dict[str, Any]


@dataclass
class Verdict:
    """`status`: ok, unusable (the graph itself does not run), or one of FINDINGS."""

    status: str
    message: str = ""
    blame: str = ""
    """The first pass after which the graph is wrong."""
    fired: tuple[str, ...] = ()
    sets: int = 0
    transformed: bytes = field(default=b"", repr=False)

    @property
    def found(self) -> bool:
        return self.status in FINDINGS

    @property
    def signature(self) -> tuple[str, str, str]:
        """What findings of one cause have in common, as far as can be told."""
        return self.status, self.blame, "" if self.status == "wrong" else _without_names(self.message)


def _without_names(message: str) -> str:
    import re

    return re.sub(r"\b[a-z]*\d+\b|\{[^}]*\}|'[^']*'|\d+", "·", message)[:100]


def judge(case: Case, announce: Callable[[str], None] = lambda _: None) -> Verdict:
    """Run both; `announce` hears which of the two is about to run, for whoever outlives a crash."""
    announce("original")
    try:
        original = open_session(case.model)
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        return Verdict("unusable", f"refused: {error}")
    expected = [(feed, out) for feed in case.feeds if (out := _run(original, feed)) is not None]
    if not expected:
        return Verdict("unusable", "runs on none of the inputs")
    announce("transform")
    model = onnx.ModelProto.FromString(case.model)
    pipeline = resolve(case.pipeline)
    failing = Failing()
    try:
        result = pipeline.run(load(case.model), [failing])
    except FuselineError as error:
        return Verdict("error", f"{type(error).__name__}: {error.message}", failing.name)
    except Exception as error:  # whatever it is, a user would see a traceback
        return Verdict("error", f"{type(error).__name__}: {root_cause(error)}", failing.name)
    fired = tuple(dict.fromkeys(r.name for r in result.records if r.changes))
    announce("transformed")
    transformed = result.model.to_proto().SerializeToString()
    try:
        load(transformed)
    except FuselineError as error:
        return Verdict("error", f"what was written cannot be read: {error.message}", fired=fired)
    problem = _compare(model, original, expected, transformed)
    if problem is None:
        return Verdict("ok", fired=fired, sets=len(expected))
    status, message = problem
    if status != "unloadable" and not _steady(case.model, expected):
        return Verdict("unusable", "the runtime itself does not give the same twice")
    announce("original")
    blame = _blame(case, model, original, expected)
    return Verdict(status, message, blame, fired, len(expected), transformed)


@cache
def resolve(text: str) -> Pipeline:
    """The pipeline of that text, parsed once."""
    return Pipeline.resolve(text)


def load(model: bytes) -> Model:
    """The way that a file takes."""
    with tempfile.NamedTemporaryFile(suffix=".onnx", dir=_scratch()) as file:
        file.write(model)
        file.flush()
        return Model.load(file.name)


@cache
def _scratch() -> str | None:
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() else None


def _run(session: Any, feed: Feeds) -> Outputs | None:
    names = [o.name for o in session.get_outputs()]
    known = {i.name for i in session.get_inputs()}
    try:
        values = session.run(names, {k: v for k, v in feed.items() if k in known})
    except Exception:  # ONNX Runtime raises a dozen unrelated types
        return None
    return dict(zip(names, values, strict=True))


def _compare(
    model: onnx.ModelProto, original: Any, expected: list[tuple[Feeds, Outputs]], transformed: bytes
) -> tuple[str, str] | None:
    try:
        session = open_session(transformed)
    except Exception as error:
        return "unloadable", str(error).split("\n")[0]
    after = onnx.ModelProto.FromString(transformed)
    names = [o.name for o in session.get_outputs()]
    known = {i.name for i in session.get_inputs()}
    if missing := {o.name for o in model.graph.output} ^ set(names):
        return "wrong", f"the outputs differ: {sorted(missing)}"
    for feed, was in expected:
        if is_empty(feed) and ends_on(load(transformed), feed):
            continue
        try:
            values = session.run(names, {k: v for k, v in feed.items() if k in known})
        except Exception as error:
            if not runtime_errs(model, after, feed, was, None):
                return "fails", f"{str(error).split(chr(10))[0]} at {_shapes(feed)}"
            continue
        now = dict(zip(names, values, strict=True))
        problem = _differs(model, original, feed, was, now)
        if (
            problem
            and not runtime_errs(model, after, feed, was, now)
            and not _loses_digits(session, after, feed, was, now)
        ):
            return "wrong", f"{problem} at {_shapes(feed)}"
    return None


def _loses_digits(session: Any, after: onnx.ModelProto, feed: Feeds, was: Outputs, now: Outputs) -> bool:
    """Whether a kernel is imprecise where the graph is right: LayerNormalization of nearly equal numbers is.

    The reference has to make of the transformed graph what was expected, and the runtime's own results have
    to move as far as they differ when the last digits of the inputs do.
    """
    if is_empty(feed) or not confirmed(after, feed, was):
        return False
    others = [moved for seed in range(_NUDGES) if (moved := _run(session, nudged(feed, _NUDGE, seed)))]
    return all(
        compare(
            name,
            expected,
            now[name],
            tolerance_for(str(getattr(expected, "dtype", ""))),
            scale=_SCALE,
            slack=slack_of(now[name], [o[name] for o in others]),
        )
        is None
        for name, expected in was.items()
    )


def _shapes(feed: Feeds) -> str:
    return ", ".join(f"{k}{list(v.shape)}" for k, v in feed.items())


def _differs(model: onnx.ModelProto, original: Any, feed: Feeds, was: Outputs, now: Outputs) -> str:
    """What is wrong with the first output that differs by more than the model's own sensitivity."""
    others: list[Outputs] | None = None
    for name, expected in was.items():
        tolerance = tolerance_for(str(getattr(expected, "dtype", "")))
        if compare(name, expected, now[name], tolerance, scale=_SCALE) is None:
            continue
        if others is None:
            others = _nudged_results(model, original, feed)
        slack = slack_of(expected, [o[name] for o in others])
        mismatch = compare(name, expected, now[name], tolerance, scale=_SCALE, slack=slack)
        if mismatch is not None:
            return str(mismatch)
    return ""


def _nudged_results(model: onnx.ModelProto, original: Any, feed: Feeds) -> list[Outputs]:
    """The graph's own results with inputs moved, then with weights moved as well."""
    relative = _nudge_size(model)
    results = []
    for seed in range(_NUDGES):
        moved = nudged(feed, relative, seed)
        results.append(_run(original, moved))
        try:
            results.append(_run(open_session(_nudged_weights(model, relative, seed)), moved))
        except Exception:
            continue
    return [r for r in results if r is not None]


def _nudge_size(model: onnx.ModelProto) -> float:
    text = model.SerializeToString()
    sizes = [_NUDGE]
    sizes += [_NUDGE_QUANTIZED for op in _QUANTIZERS if op.encode() in text]
    kinds = {i.type.tensor_type.elem_type for i in (*model.graph.input, *model.graph.output)}
    kinds |= {t.data_type for t in model.graph.initializer}
    kinds |= {a.i for n in model.graph.node for a in n.attribute if n.op_type == "Cast"}
    sizes += [size for kind, size in _NUDGE_BY_TYPE.items() if kind in kinds]
    return max(sizes)


def _nudged_weights(model: onnx.ModelProto, relative: float, seed: int) -> bytes:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = [a.t for n in copy.graph.node if n.op_type == "Constant" for a in n.attribute]
    for index, tensor in enumerate((*copy.graph.initializer, *constants)):
        if tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
            content = nudged({"": numpy_helper.to_array(tensor)}, relative, seed * 1000 + index)[""]
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(content), tensor.name))
    return bytes(copy.SerializeToString())


def _steady(model: bytes, expected: list[tuple[Feeds, Outputs]]) -> bool:
    """Whether the graph gives the same again: in a second session, and after other inputs."""
    again = open_session(model)
    for feed, was in reversed(expected):
        now = _run(again, feed)
        if now is None:
            return False
        for name, value in was.items():
            if compare(name, value, now[name], tolerance_for("exact")) is not None:
                return False
    return True


class Failing(Observer):
    """Remembers the pass that failed by itself."""

    name = ""

    def failed(self, record: PassRecord, model: Model) -> None:
        self.name = record.name


class _Culprit(Observer):
    """Stops nothing; remembers the first pass after which the graph is wrong."""

    def __init__(self, wrong: Callable[[bytes], bool]) -> None:
        self.wrong = wrong
        self.name = ""

    def after(self, record: PassRecord, model: Model) -> None:
        if record.changes and not self.name and self.wrong(model.to_proto().SerializeToString()):
            self.name = record.name


def _blame(case: Case, model: onnx.ModelProto, original: Any, expected: list[tuple[Feeds, Outputs]]) -> str:
    culprit = _Culprit(lambda after: _compare(model, original, expected, after) is not None)
    try:
        resolve(case.pipeline).run(load(case.model), [culprit])
    except FuselineError:
        return culprit.name
    return culprit.name
