"""Verification tries what rewrites go wrong at: each planted fault shows at one kind of inputs alone."""

from __future__ import annotations

import os
import signal

import pytest

from fuseline.engine.model import Model
from fuseline.engine.observers import Verify
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.verification import Verifier, isolated

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'


def _other(text: str) -> Model:
    return Model.from_text(f"{HEAD} {text}")


def _compare(before: str, after: str) -> str:
    model = _other(before)
    verifier = Verifier(model)
    report, _ = verifier.check(verifier.measure(model), _other(after))
    return str(report)


def test_equal_models_are_equal() -> None:
    text = "g (float[N,4] x) => (float[N,4] y) { y = Mul(x, x) }"
    assert _compare(text, text) == "equal"


@pytest.mark.parametrize(
    "before, after, inputs",
    [
        # The batch baked in where it is 1.
        (
            "g (float[N,4] x) => (float[M,4] y) { i = Identity(x) y = Reshape(i, s) }".replace(
                "=> (float[M,4] y) {", "=> (float[M,4] y) <int64[2] s = {-1, 4}> {"
            ),
            "g (float[N,4] x) => (float[M,4] y) <int64[2] s = {0, -1}> { i = Identity(x) y = Reshape(i, s) }",
            "N = 0",
        ),
        # A NaN swallowed.
        (
            "g (float[N,4] x) => (float[N,4] y) { y = Identity(x) }",
            "g (float[N,4] x) => (float[N,4] y) <float big = {1e30}> "
            "{ n = IsNaN(x) o = Not(n) z = CastLike(o, x) a = Where(n, z, x) "
            "l = Neg(big) y = Clip(a, l, big) }",
            "NaN and infinity",
        ),
        # Arithmetic that is right as long as nothing overflows.
        (
            "g (int32[N] x) => (int32[N] y) { y = Add(x, x) }",
            "g (int32[N] x) => (int32[N] y) <float two = {2}> "
            "{ f = Cast<to = 1>(x) d = Mul(f, two) y = Cast<to = 6>(d) }",
            "the ends of the integers",
        ),
        # A mask that is taken for a number of tokens.
        (
            "g (int64[N,T] mask) => (int64[N,T] y) { y = Identity(mask) }",
            "g (int64[N,T] mask) => (int64[N,T] y) <int64[1] one = {1}, int64 zero = {0}, int64 step = {1}> "
            "{ n = ReduceSum(mask, one) s = Shape<start = 1>(mask) t = Squeeze(s) "
            "r = Range(zero, t, step) b = Less(r, n) y = Cast<to = 7>(b) }",
            "masks padded on the left",
        ),
    ],
)
def test_a_fault_shows_where_it_is(before: str, after: str, inputs: str) -> None:
    assert f"(with {inputs})" in _compare(before, after)


def test_an_output_that_depends_on_nothing_is_reported() -> None:
    text = (
        "g (float[N,4] x) => (float[N,4] y, float[2] z) "
        "{ y = Abs(x) z = Constant<value = float[2] {1, 2}>() }"
    )
    verifier = Verifier(_other(text))
    assert verifier.insensitive == ["z"]
    observer = Verify("outputs")
    Pipeline.parse("remove-unused").run(_other(text), [observer])
    assert any("proves nothing" in note and "'z'" in note for note in observer.notes)


def test_what_the_model_itself_does_not_run_on_is_said() -> None:
    fixed = "g (float[N,4] x) => (float[2,8] y) <int64[2] s = {2, 8}> { y = Reshape(x, s) }"
    verifier = Verifier(_other(fixed))
    assert "N = 0" in verifier.skipped
    assert "every free size 1" in verifier.skipped


def test_a_quantized_model_is_judged_by_its_own_steps() -> None:
    """Two spellings of one product, which round to different steps now and then."""
    quantize = "q = QuantizeLinear(p, s, z) y = DequantizeLinear(q, s, z)"
    head = (
        "g (float[N,64] x) => (float[N,64] y) "
        "<float s = {0.001}, int8 z = {0}, float third = {0.3333333}, float three = {3.0000003}>"
    )
    one = f"{head} {{ p = Mul(x, third) {quantize} }}"
    other = f"{head} {{ p = Div(x, three) {quantize} }}"
    assert _compare(one, other) == "equal"
    wrong = one.replace("0.3333333", "0.35")
    assert "elements differ" in _compare(one, wrong)


def test_a_crash_of_the_runtime_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _other("g (float[N,4] x) => (float[N,4] y) { y = Abs(x) }")
    verifier = Verifier(model)
    reference = verifier.measure(model)
    process = isolated._process
    original = process._exchange

    def crash(running: object, request: tuple[object, ...]) -> object:
        if request[0] == "run":
            os.kill(running.pid, signal.SIGSEGV)  # type: ignore[attr-defined]
        return original(running, request)  # type: ignore[arg-type]

    monkeypatch.setattr(process, "_exchange", crash)
    report, results = verifier.check(reference, model)
    assert "ONNX Runtime crashed: its process ended by signal 11" in str(report)
    assert results is None
    monkeypatch.undo()
    assert verifier.check(reference, model)[0].ok
