"""Does the graph compute what torch computes? Loss and outputs, on several shapes, with named tolerances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fuseline.engine.execution.weights import weights_as_inputs
from fuseline.engine.model import Model
from fuseline.engine.runtime import run, session
from fuseline.exporters.errors import ExportError
from fuseline.exporters.mode import without_dropout
from fuseline.exporters.plan import Plan

__all__ = [
    "GRADIENT_TOLERANCE",
    "LOSS_TOLERANCE",
    "OUTPUT_TOLERANCE",
    "Check",
    "CheckReport",
    "Runner",
    "check",
    "check_gradients",
    "compare",
    "compare_gradient",
    "gradient_scale",
    "largest_of",
]

Array = npt.NDArray[Any]

#: Largest difference from torch, relative to the largest value of the output (at least 1).
OUTPUT_TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
GRADIENT_TOLERANCE = {"float64": 1e-8, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
LOSS_TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "float16": 5e-3, "bfloat16": 2e-2}

#: Below this share of the model's largest gradient, a float32 gradient is what rounding left of zero.
ZERO_GRADIENT = 1e-5
#: The least scale that a gradient is judged by, and that of one which is zero, as shares of the largest.
SMALL_GRADIENT = 1e-3
CANCELLED_GRADIENT = 1e-2


@dataclass(frozen=True)
class Check:
    """One output on one shape."""

    shape: str
    output: str
    difference: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.difference <= self.tolerance


@dataclass(frozen=True)
class CheckReport:
    """All checks of an export."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(c.ok for c in self.checks)

    @property
    def worst(self) -> Check:
        return max(self.checks, key=lambda c: c.difference / max(c.tolerance, 1e-12))

    def difference(self, output: str) -> float:
        """The largest difference of an output over all shapes."""
        return max((c.difference for c in self.checks if c.output == output), default=float("nan"))

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(c) for c in self.checks]

    @classmethod
    def from_json(cls, rows: Iterable[Mapping[str, Any]]) -> CheckReport:
        return cls(tuple(Check(**row) for row in rows))


class Runner:
    """Runs a model on ONNX Runtime; weights are fed from where they are, so they are never copied."""

    def __init__(self, model: Model, *, threads: int = 1) -> None:
        fed = model.clone()
        weights = weights_as_inputs(fed.ir, lambda _, tensor: tensor.size > 1)
        self._weights: dict[str, Array] = {name: tensor.numpy() for name, tensor in weights.items()}
        self._session = session(fed, threads=threads)

    def __call__(self, feeds: dict[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        return run(self._session, {**feeds, **self._weights}, outputs)


def check(model: Model, plan: Plan) -> CheckReport:
    """Compare graph and torch on every shape and side of padding. Dropout passes through on both sides.

    A loss that torch itself has not, such as that of rows without a label, is none to compare with where
    there is anything else.
    """
    runner = Runner(without_dropout(model))
    checks: list[Check] = []
    undefined: list[Check] = []
    for batch, expected in _accepted(plan, plan.expected):
        feeds = {item.name: value.numpy() for item, value in zip(plan.inputs, batch, strict=True)}
        actual = runner(feeds, list(expected))
        shape = _describe(plan, batch)
        for name, value in expected.items():
            found = undefined if name == "loss" and not torch.isfinite(value).all() else checks
            found.append(compare(shape, name, value, actual[name]))
    return CheckReport(tuple(checks or undefined))


def _accepted(
    plan: Plan, compute: Callable[[list[Tensor]], dict[str, Tensor]]
) -> Iterator[tuple[list[Tensor], dict[str, Tensor]]]:
    """The batches that torch itself accepts (a batch norm refuses a single row), with what it computes."""
    refusal: Exception | None = None
    accepted = 0
    for batch in plan.checked():
        try:
            expected = compute(batch)
        except (RuntimeError, ValueError, IndexError) as error:
            refusal = error
            continue
        accepted += 1
        yield batch, expected
    if not accepted:
        raise ExportError(
            f"torch itself refuses every batch that a check would run: {refusal}",
            hint="give example_inputs that the model accepts",
        ) from refusal


def check_gradients(plan: Plan, run: Callable[[dict[str, Array]], Mapping[str, Array]]) -> CheckReport:
    """Compare gradients with torch's on every shape; `run` gives the graph's, by torch name, for a batch.

    A difference is relative to the largest element of that gradient, or to a thousandth of the model's
    largest gradient where that is more. A gradient that is zero but for rounding (of a bias that a softmax
    cancels) is relative to a hundredth: rounding is in proportion to the terms that cancel, not to their sum.
    The report holds the worst parameter of each shape.
    """
    checks: list[Check] = []
    for batch, expected in _accepted(plan, plan.expected_gradients):
        largest = max(float(g.abs().max()) for g in expected.values())
        feeds = {item.name: value.numpy() for item, value in zip(plan.inputs, batch, strict=True)}
        actual, shape = run(feeds), _describe(plan, batch)
        rows = [compare_gradient(shape, n, g, actual.get(n), largest) for n, g in expected.items()]
        checks.append(max(rows, key=lambda c: c.difference))
    return CheckReport(tuple(checks))


def compare_gradient(shape: str, name: str, expected: Tensor, actual: Array | None, largest: float) -> Check:
    """One gradient against torch's; `largest` is the largest element of all of torch's."""
    scale = gradient_scale(expected, largest)
    # The graph leaves out parameters that the loss does not depend on.
    found = torch.zeros_like(expected) if actual is None else _tensor(actual)
    difference = largest_of(expected.detach() - found) / scale
    tolerance = GRADIENT_TOLERANCE.get(str(expected.dtype).removeprefix("torch."), 0.0)
    return Check(shape, name, difference if math.isfinite(difference) else float("inf"), tolerance)


def _tensor(array: Array) -> Tensor:
    if array.dtype.kind != "f" or array.dtype.itemsize < 4:
        # torch reads no bfloat16 of numpy's, and differences in float16 overflow
        array = array.astype(np.float32)
    return torch.from_numpy(array)


def largest_of(tensor: Tensor) -> float:
    """The largest magnitude, NaN if there is one; gradients are large, and nothing is copied."""
    return float(torch.linalg.vector_norm(tensor, ord=torch.inf)) if tensor.numel() else 0.0


def gradient_scale(expected: Tensor, largest: float) -> float:
    """What the differences from a gradient are divided by."""
    own = largest_of(expected.detach())
    floor = SMALL_GRADIENT if own > ZERO_GRADIENT * largest else CANCELLED_GRADIENT
    return max(own, floor * largest, 1e-30)


def compare(shape: str, name: str, expected: Tensor, actual: Array) -> Check:
    """One output against torch's."""
    dtype = str(expected.dtype).removeprefix("torch.")
    table = LOSS_TOLERANCE if name == "loss" else OUTPUT_TOLERANCE
    wanted = expected.detach().to(torch.float64).numpy()
    # At batch 1 torch's squeeze() also drops the batch, which a graph must not; the values are the same.
    if wanted.squeeze().shape != actual.squeeze().shape:
        return Check(shape, name, float("inf"), table.get(dtype, 0.0))
    actual = actual.reshape(wanted.shape)
    scale = max(
        1.0, float(np.abs(wanted, where=np.isfinite(wanted), out=np.zeros_like(wanted)).max(initial=0.0))
    )
    apart = (wanted != actual) & ~(np.isnan(wanted) & np.isnan(actual))  # infinities have no difference
    difference = float(np.abs(wanted[apart] - actual[apart].astype(np.float64)).max(initial=0.0)) / scale
    difference = difference if np.isfinite(difference) else float("inf")
    return Check(shape, name, difference, table.get(dtype, 0.0))


def _describe(plan: Plan, batch: list[Tensor]) -> str:
    sizes: dict[str, int] = {}
    for item, value in zip(plan.inputs, batch, strict=True):
        for axis, name in item.dynamic.items():
            sizes.setdefault(name, value.shape[axis])
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed"
