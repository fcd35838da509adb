"""What a case must pass: the text, the numbers, and that a second run changes nothing."""

from __future__ import annotations

import difflib
from dataclasses import replace

import numpy as np

from fuseline import kernels
from fuseline.engine import runtime
from fuseline.engine.inputs import generate
from fuseline.engine.manager import Result
from fuseline.engine.model import Model
from fuseline.engine.patterns import Fusion
from fuseline.engine.patterns.explain import explain
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.golden.cases import Case, build, parse_model
from fuseline.tools.golden.text import comparable, printed

__all__ = ["Failed", "check", "compare"]

# Rewrites may reorder float arithmetic, never more.
TOLERANCE = {"float16": (2e-3, 2e-3), "float32": (2e-5, 2e-5), "float64": (1e-10, 1e-10)}


class Failed(AssertionError):
    """A case does not hold; the text says what was made, and where it differs."""


def check(pipeline: str, case: Case) -> str:
    """Run a case. Gives the text of what was made, "" where nothing may change; raises `Failed`.

    The text itself is not compared: see `compare`.
    """
    before = build(case)
    result = Pipeline.parse(pipeline).run(before)
    if "EXPECT-UNCHANGED" in case.directives:
        _check_unchanged(pipeline, before, result, case.directives["EXPECT-UNCHANGED"])
        if "UNLESS" in case.directives:
            _check_unless(pipeline, case)
        return ""
    if not result.changes:
        raise Failed("nothing changed" + _reasons(result))
    if "ONCE" not in case.directives:
        _check_settled(pipeline, result.model)
    if "NO-RUN" not in case.directives:
        _check_numbers(before, result.model, float(case.directives.get("TOLERANCE", 0)))
    return printed(result.model.to_proto(), types="TYPES" in case.directives)


def compare(case: Case, text: str) -> None:
    """Hold what was made against what the case expects."""
    types = "TYPES" in case.directives
    made, wanted = (comparable(parse_model(t), types=types) for t in (text, case.expected))
    if made != wanted:
        lines = difflib.unified_diff(wanted.splitlines(), made.splitlines(), "expected", "made", lineterm="")
        raise Failed(f"made:\n{text}\nwhich differs in:\n" + "\n".join(lines))


def _check_unchanged(pipeline: str, before: Model, result: Result, reason: str) -> None:
    rewrites = [f"{r.name}: {w.site} {w.note}" for r in result.records for w in r.rewrites]
    if result.changes:
        raise Failed(f"should be unchanged, but: {rewrites}")
    if not reason:
        raise Failed("'EXPECT-UNCHANGED:' must give the reason" + _reasons(result))
    given = [r.reason for record in result.records for r in record.rejections]
    given += _near_misses(pipeline, before)
    if reason.startswith("(") and given:
        raise Failed(f"a reason was reported, write part of it: {given}")
    if not reason.startswith("(") and not any(reason in g for g in given):
        raise Failed(f"nothing said {reason!r}; reasons given: {given or 'none'}")


def _check_unless(pipeline: str, case: Case) -> None:
    """The reason is the only one: without what it names, the pipeline does change the model."""
    this, found, that = case.directives["UNLESS"].partition(" ==> ")
    if not found:
        raise Failed("'UNLESS:' must say what is replaced by what: this ==> that")
    text = f"TRAINABLE: {case.directives.get('TRAINABLE', 'nothing')}\n{case.model}"
    if this not in text:
        raise Failed(f"the case has no {this!r}")
    head, _, model = text.replace(this, that).partition("\n")
    trained = head.removeprefix("TRAINABLE: ").removeprefix("nothing")
    other = replace(case, model=model, directives={"TRAINABLE": trained})
    if not Pipeline.parse(pipeline).run(build(other)).changes:
        raise Failed(f"with {that!r} nothing changes, either")


def _near_misses(pipeline: str, before: Model) -> list[str]:
    """Where a fusion nearly matches the untouched model."""
    fusions = [p for p in Pipeline.parse(pipeline).passes() if isinstance(p, Fusion)]
    misses = [miss for fusion in fusions for miss in explain(fusion, before).near_misses]
    return [f"found {miss.found}, expected {miss.expected}" for miss in misses]


def _reasons(result: Result) -> str:
    given = [f"{r.site}: {r.reason}" for record in result.records for r in record.rejections]
    return "; reasons given: " + ("; ".join(given) if given else "none")


def _check_settled(pipeline: str, model: Model) -> None:
    again = Pipeline.parse(pipeline).run(model)
    more = [f"{r.name}: {w.site} {w.note}" for r in again.records for w in r.rewrites]
    if again.changes:
        raise Failed(f"a second run changes more: {more}")


def _check_numbers(before: Model, after: Model, part: float) -> None:
    if not kernels.available() and any(node.domain == kernels.DOMAIN for node in after.nodes()):
        return  # the text has been compared; there is nothing to run the operators with
    inputs = generate(before, seed=0)
    was = runtime.run(runtime.session(before, threads=1), inputs)
    now = runtime.run(runtime.session(after, threads=1), inputs)
    if list(was) != list(now):
        raise Failed("the outputs have other names or another order")
    for name, expected in was.items():
        actual = now[name]
        if type(actual) is not type(expected):
            raise Failed(f"{name} was a {type(expected).__name__}, and now is a {type(actual).__name__}")
        if not isinstance(expected, np.ndarray):
            continue
        if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
            raise Failed(
                f"{name} was {expected.dtype}{expected.shape}, and now is {actual.dtype}{actual.shape}"
            )
        rtol, atol = TOLERANCE.get(str(expected.dtype), (0.0, 0.0))
        if part and expected.dtype.kind == "f":
            atol = part * float(np.abs(expected).max())
        try:
            if expected.dtype == object or not atol:
                np.testing.assert_array_equal(actual, expected, err_msg=name)
            else:
                np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=name)
        except AssertionError as error:
            raise Failed(str(error).strip()) from error
