"""The verifier: sets of inputs, a reference result, and the question whether another model agrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fuseline.engine import runtime
from fuseline.engine.determinism import deterministic
from fuseline.engine.errors import FuselineError, ModelError, PassError
from fuseline.engine.inputs import generate_sets, interface
from fuseline.engine.model import Model
from fuseline.engine.properties import Property
from fuseline.engine.tolerance import tolerance_for
from fuseline.engine.verification import isolated
from fuseline.engine.verification.compare import Mismatch, compare
from fuseline.engine.verification.empty import ends_on
from fuseline.engine.verification.gradients import gradient_names, original_gradients, with_gradients
from fuseline.engine.verification.sensitivity import QUANTIZED_NUDGE, Slack, nudged, quantizes, slack_of
from fuseline.engine.verification.variations import InputSet, variations

__all__ = ["Quantity", "Report", "Results", "Verifier"]

Array = npt.NDArray[Any]
Quantity = Literal["outputs", "gradients"]

# Outputs are judged as if they reached this magnitude: ONNX Runtime's Sigmoid and Tanh are exact to a few
# 1e-7 and no better, however small their results.
_OUTPUT_SCALE = 0.05
# How often a quantized model is run on nudged inputs.
_NUDGES = 3
# A gradient that is zero but for rounding is judged against the others: by this part of the largest.
_GRADIENT_SCALE = 0.1


@dataclass
class Results:
    """What one model gives on every input set; gradients only where they can be built."""

    outputs: list[dict[str, Any]]
    gradients: list[dict[str, Array]] | None = None
    no_gradients: str = ""


@dataclass
class Report:
    """The verdict. `error` is set where the model did not run at all."""

    mismatches: list[Mismatch] = field(default_factory=list)
    error: str = ""

    @property
    def ok(self) -> bool:
        return not self.mismatches and not self.error

    def __str__(self) -> str:
        if self.error:
            return self.error
        return "\n".join(str(m) for m in self.mismatches) or "equal"

    def _repr_html_(self) -> str:
        from fuseline.engine.display import text_html

        return text_html(str(self))


class Verifier:
    """Runs models on fixed inputs with ONNX Runtime's own optimisations off, and compares."""

    def __init__(
        self,
        model: Model,
        quantity: Quantity = "outputs",
        *,
        inputs: Mapping[str, Array] | None = None,
        seed: int = 0,
    ) -> None:
        if quantity == "gradients" and not model.training:
            raise FuselineError(
                "gradients can be verified on training graphs only, and this model has no loss to train",
                hint="export with --train, or verify outputs",
            )
        self.quantity = quantity
        self.skipped: list[str] = []
        """Inputs that were not tried, since the model itself does not run on them."""
        self.insensitive: list[str] = []
        """Outputs that no input had an influence on: that they agree proves nothing."""
        self._slack: list[dict[str, Slack]] = []
        prepared = deterministic(model)
        if inputs is not None:
            self._sets = [InputSet("the given inputs", dict(inputs))]
        else:
            self._sets = self._made_sets(prepared, seed)
        self._know(prepared)

    @property
    def inputs(self) -> list[dict[str, Array]]:
        """What models are run on."""
        return [dict(s.feeds) for s in self._sets]

    def _made_sets(self, model: Model, seed: int) -> list[InputSet]:
        running = isolated.session(model)
        plain = generate_sets(model, seed=seed, session=running)
        made = [InputSet("", feeds) for feeds in plain]
        if self.quantity == "gradients":
            # A loss of nothing, or of NaN, has no gradient to compare.
            return made
        varied = variations(model, plain[0], running, seed)
        self.skipped = varied.skipped
        return made + varied.sets

    def _know(self, model: Model) -> None:
        """Run the model itself: which outputs depend on the inputs at all, and how strongly."""
        running = isolated.session(model)
        results = [runtime.run(running, _complete(model, s.feeds)) for s in self._sets]
        if interface(model) and len(results) > 1:
            self.insensitive = [n for n in results[0] if _never_changes([r[n] for r in results])]
        if not quantizes(model):
            return
        for wanted, expected in zip(self._sets, results, strict=True):
            fed = _complete(model, wanted.feeds)
            others = [runtime.run(running, nudged(fed, QUANTIZED_NUDGE, seed)) for seed in range(_NUDGES)]
            self._slack.append({n: slack_of(v, [o[n] for o in others]) for n, v in expected.items()})

    def measure(self, model: Model) -> Results:
        """Run the model on every input set; raises ModelError if ONNX Runtime does not take it."""
        prepared = deterministic(model)
        if self.quantity == "outputs":
            return Results(_without(self._run(prepared), gradient_names(model)))
        try:
            differentiated = with_gradients(prepared)
        except PassError as error:
            return Results(_without(self._run(prepared), gradient_names(model)), no_gradients=error.message)
        measured = self._run(differentiated)
        gradients = [original_gradients(out, differentiated) for out in measured]
        if not model.has(Property.DIFFERENTIATED):
            # The gradients come from a mended copy; the outputs have to come from the model itself.
            measured = self._run(prepared)
        return Results(_without(measured, gradient_names(differentiated)), gradients)

    def _run(self, model: Model) -> list[dict[str, Any]]:
        running = isolated.session(model)
        results: list[dict[str, Any]] = []
        for wanted in self._sets:
            if ends_on(model, wanted.feeds):
                results.append({})
                continue
            try:
                results.append(runtime.run(running, _complete(model, wanted.feeds)))
            except ModelError as error:
                at = f" (with {wanted.label})" if wanted.label else ""
                raise ModelError(f"{error.message}{at}") from error
        return results

    def check(self, reference: Results, model: Model) -> tuple[Report, Results | None]:
        """Compare the model with earlier results; gives its own, to go on from."""
        try:
            results = self.measure(model)
        except ModelError as error:
            return Report(error=error.message), None
        return self.judge(reference, results), results

    def judge(self, reference: Results, results: Results) -> Report:
        mismatches: list[Mismatch] = []
        for index, (was, now) in enumerate(zip(reference.outputs, results.outputs, strict=True)):
            slack = self._slack[index] if self._slack else {}
            if not was or not now:
                # Not run: the kernel of a fused operator ends the process on empty inputs.
                continue
            mismatches.extend(_compare_outputs(self._sets[index], was, now, slack))
        if reference.gradients is not None and results.gradients is None:
            return Report(mismatches, error=f"gradients can no longer be built: {results.no_gradients}")
        for was, now in zip(reference.gradients or (), results.gradients or (), strict=False):
            mismatches.extend(_compare_all(was, now, "gradient of", scale=_largest(was) * _GRADIENT_SCALE))
        return Report(_worst_per_name(mismatches))


def _without(results: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [{k: v for k, v in out.items() if k not in names} for out in results]


def _compare_outputs(
    fed: InputSet, was: Mapping[str, Any], now: Mapping[str, Any], slack: Mapping[str, Slack]
) -> list[Mismatch]:
    if not fed.finite:
        was, now = _alike_where_not_finite(was, now)
    found = _compare_all(was, now, "output", scale=_OUTPUT_SCALE, slack=slack)
    return [replace(m, inputs=fed.label) for m in found]


def _alike_where_not_finite(
    was: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """NaN for every value that is not finite: what must not get lost is that, and not which."""
    return ({n: _nan_or_finite(v) for n, v in was.items()}, {n: _nan_or_finite(v) for n, v in now.items()})


def _nan_or_finite(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    return np.where(np.isfinite(value), value, value.dtype.type(np.nan))


def _never_changes(results: Sequence[Any]) -> bool:
    """Whether an output is the same whatever goes in; what is empty tells nothing."""
    arrays = [r for r in results if isinstance(r, np.ndarray) and r.size]
    if len(arrays) < 2:
        return False
    first = arrays[0]
    if any(a.shape != first.shape for a in arrays):
        content = first.flat[0]
        return all(bool(np.all(a == content)) for a in arrays)
    return all(a.tobytes() == first.tobytes() for a in arrays)


def _compare_all(
    was: Mapping[str, Any],
    now: Mapping[str, Any],
    word: str,
    scale: float,
    slack: Mapping[str, Slack] | None = None,
) -> list[Mismatch]:
    found = []
    for name, expected in was.items():
        label = f"{word} {name!r}"
        if name not in now:
            found.append(Mismatch(label, "is missing"))
            continue
        tolerance = tolerance_for(str(getattr(expected, "dtype", "float32")))
        allowed = (slack or {}).get(name, 0.0)
        mismatch = compare(label, expected, now[name], tolerance, scale=scale, slack=allowed)
        if mismatch is not None:
            found.append(mismatch)
    return found


def _largest(arrays: Mapping[str, Array]) -> float:
    tops = [float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) for a in arrays.values() if a.dtype.kind == "f"]
    return max(tops, default=0.0)


def _worst_per_name(mismatches: Sequence[Mismatch]) -> list[Mismatch]:
    """One line per name, over all input sets; the worst names first."""
    worst: dict[str, Mismatch] = {}
    for mismatch in mismatches:
        known = worst.get(mismatch.name)
        if known is None or _badness(mismatch) > _badness(known):
            worst[mismatch.name] = mismatch
    return sorted(worst.values(), key=_badness, reverse=True)


def _badness(mismatch: Mismatch) -> float:
    if mismatch.relative_error is None or np.isnan(mismatch.relative_error):
        return float("inf")
    return mismatch.relative_error


def _complete(model: Model, fed: Mapping[str, Array]) -> dict[str, Array]:
    """The given inputs, and for inputs that a pass added: 1 for the loss's gradient, else zeros."""
    from fuseline.engine.training.gradients import LOSS_GRADIENT

    complete = dict(fed)
    for wanted in interface(model):
        if wanted.name in complete:
            continue
        shape = tuple(d if isinstance(d, int) else 1 for d in wanted.dims)
        content = np.ones if wanted.name == LOSS_GRADIENT else np.zeros
        complete[wanted.name] = content(shape, wanted.dtype.numpy())
    return complete
