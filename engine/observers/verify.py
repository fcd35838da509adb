"""The verification gate: a pass that changes results fails, with the worst element named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import numpy.typing as npt

from fuseline.engine.errors import FuselineError, GateFailed
from fuseline.engine.observer import Observer
from fuseline.engine.verification import Quantity, Report, Verifier
from fuseline.engine.verification.difference import largest_difference

if TYPE_CHECKING:
    from fuseline.engine.manager import PassRecord, Result
    from fuseline.engine.model import Model
    from fuseline.engine.verification.verifier import Results

__all__ = ["Verify"]

Array = npt.NDArray[Any]


class Verify(Observer):
    """After every pass that changed something, compare with the state before it; at the end, with the start.

    `gradients` compares the gradients of the loss besides the outputs, by original parameter name. Before the
    pipeline differentiates the graph, they come from a copy that is prepared for the gradient; while that
    cannot be, outputs alone are compared, and if it never can, the run fails.
    """

    def __init__(
        self, quantity: Quantity = "outputs", *, inputs: Mapping[str, Array] | None = None, seed: int = 0
    ) -> None:
        if quantity not in get_args(Quantity):
            raise FuselineError(f"verification is of 'outputs' or 'gradients', not {quantity!r}")
        self.quantity: Quantity = quantity
        self.given = inputs
        self.seed = seed
        self.checked = 0
        self.sets = 0
        """How many sets of inputs the models are compared on."""
        self.notes: list[str] = []
        """What the comparison does not say."""

    def started(self, model: Model) -> None:
        self.checked = 0
        self._verifier = Verifier(model, self.quantity, inputs=self.given, seed=self.seed)
        self.sets = len(self._verifier.inputs)
        self.notes = _notes(self._verifier)
        self._first = self._current = self._verifier.measure(model)

    def after(self, record: PassRecord, model: Model) -> None:
        if not record.changes:
            return
        report, results = self._verifier.check(self._current, model)
        self.checked += 1
        if not report.ok or results is None:
            did = f"changed the {self.quantity}" if results is not None else "left a model that does not run"
            raise GateFailed(
                f"pass {record.step.index} {record.name!r} {did}\n{_indent(report)}",
                hint="`fuseline bisect` finds the rewrite; --revert-failing leaves the pass out and goes on",
            )
        record.difference = largest_difference(self._current, results)
        record.verification = f"{self.quantity} unchanged"
        self._current = _with_first_gradients(results, self._current)

    def finished(self, result: Result) -> None:
        if self.quantity == "gradients" and self._current.gradients is None:
            raise GateFailed(
                f"no gradients were compared, since the graph cannot be differentiated: "
                f"{self._current.no_gradients}",
                hint="begin the pipeline with the passes that prepare for the gradient, or verify outputs",
            )
        report = self._verifier.judge(self._first, self._current)
        if not report.ok:
            raise GateFailed(
                f"every pass kept the {self.quantity} within tolerance, but together they drifted\n"
                f"{_indent(report)}"
            )


def _with_first_gradients(results: Results, before: Results) -> Results:
    if results.gradients is None:
        results.gradients = before.gradients
    return results


def _notes(verifier: Verifier) -> list[str]:
    notes = []
    if verifier.insensitive:
        names = ", ".join(map(repr, verifier.insensitive[:3])) + (" …" if verifier.insensitive[3:] else "")
        notes.append(f"no input had an influence on {names}: that it stayed the same proves nothing")
    if verifier.skipped:
        notes.append(
            f"not compared, since the model itself does not run on it: {'; '.join(verifier.skipped)}"
        )
    return notes


def _indent(report: Report) -> str:
    return "\n".join(f"  {line}" for line in str(report).splitlines())
