"""The verifier: one set of inputs, a reference result, and the question whether another model agrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from fuseline.engine.verification.compare import Mismatch, compare
from fuseline.engine.verification.gradients import gradient_names, original_gradients, with_gradients

__all__ = ["Quantity", "Report", "Results", "Verifier"]

Array = npt.NDArray[Any]
Quantity = Literal["outputs", "gradients"]

# Outputs are judged as if they reached this magnitude: ONNX Runtime's Sigmoid and Tanh are exact to a few
# 1e-7 and no better, however small their results.
_OUTPUT_SCALE = 0.05
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
        self.inputs = [dict(inputs)] if inputs is not None else generate_sets(deterministic(model), seed=seed)

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
        running = runtime.session(model, threads=1)
        return [runtime.run(running, _complete(model, fed)) for fed in self.inputs]

    def check(self, reference: Results, model: Model) -> tuple[Report, Results | None]:
        """Compare the model with earlier results; gives its own, to go on from."""
        try:
            results = self.measure(model)
        except ModelError as error:
            return Report(error=error.message), None
        return self.judge(reference, results), results

    def judge(self, reference: Results, results: Results) -> Report:
        mismatches: list[Mismatch] = []
        for was, now in zip(reference.outputs, results.outputs, strict=True):
            mismatches.extend(_compare_all(was, now, "output", scale=_OUTPUT_SCALE))
        if reference.gradients is not None and results.gradients is None:
            return Report(mismatches, error=f"gradients can no longer be built: {results.no_gradients}")
        for was, now in zip(reference.gradients or (), results.gradients or (), strict=False):
            mismatches.extend(_compare_all(was, now, "gradient of", scale=_largest(was) * _GRADIENT_SCALE))
        return Report(_worst_per_name(mismatches))


def _without(results: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [{k: v for k, v in out.items() if k not in names} for out in results]


def _compare_all(was: Mapping[str, Any], now: Mapping[str, Any], word: str, scale: float) -> list[Mismatch]:
    found = []
    for name, expected in was.items():
        label = f"{word} {name!r}"
        if name not in now:
            found.append(Mismatch(label, "is missing"))
            continue
        tolerance = tolerance_for(str(getattr(expected, "dtype", "float32")))
        mismatch = compare(label, expected, now[name], tolerance, scale=scale)
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
