"""Comparing two results, and saying exactly where they part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.tolerance import Tolerance
from fuseline.engine.verification.sensitivity import Slack

__all__ = ["Mismatch", "compare"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Mismatch:
    """One result that differs: the worst element with both values, or in words what else is wrong."""

    name: str
    problem: str
    index: tuple[int, ...] | None = None
    expected: Any = None
    actual: Any = None
    relative_error: float | None = None
    wrong: int = 0
    total: int = 0
    inputs: str = ""
    """What was special about the inputs at which it differs."""

    def __str__(self) -> str:
        at = f" (with {self.inputs})" if self.inputs else ""
        if self.index is None:
            return f"{self.name}: {self.problem}{at}"
        error = "" if self.relative_error is None else f", relative error {self.relative_error:.3g}"
        index = ", ".join(map(str, self.index))
        return (
            f"{self.name}: {self.wrong:,} of {self.total:,} elements differ; the worst is "
            f"[{index}]: {_shown(self.expected)} before, {_shown(self.actual)} after{error}{at}"
        )


def _shown(value: Any) -> str:
    """Float32 and smaller in as many digits as they have."""
    return f"{value:.8g}" if isinstance(value, np.floating) and value.itemsize < 8 else str(value)


def compare(
    name: str,
    expected: Any,
    actual: Any,
    tolerance: Tolerance,
    *,
    scale: float | None = None,
    slack: Slack = 0.0,
) -> Mismatch | None:
    """None if equal within the tolerance. NaN equals NaN, and infinities of one sign are equal.

    `scale` replaces the largest magnitude in `expected` if it is larger (see `fuseline.engine.tolerance`);
    `slack` is what the model itself makes of a tiny change of its inputs.
    """
    if isinstance(expected, list) or isinstance(actual, list):
        return _compare_sequences(name, expected, actual, tolerance)
    if expected is None or actual is None:
        return None if expected is actual else Mismatch(name, "is empty on one side only")
    if expected.dtype != actual.dtype and {expected.dtype.kind, actual.dtype.kind} - {"O", "U", "S"}:
        return Mismatch(name, f"has type {actual.dtype} instead of {expected.dtype}")
    if expected.shape != actual.shape:
        return Mismatch(name, f"has shape {list(actual.shape)} instead of {list(expected.shape)}")
    if expected.dtype.kind not in "fcV":
        return _compare_exactly(name, expected, actual) if slack != float("inf") else None
    return _compare_floats(name, expected, actual, tolerance, scale, slack)


def _compare_sequences(name: str, expected: Any, actual: Any, tolerance: Tolerance) -> Mismatch | None:
    if not isinstance(expected, list) or not isinstance(actual, list) or len(expected) != len(actual):
        return Mismatch(name, "is not a sequence of the same length")
    for position, (was, now) in enumerate(zip(expected, actual, strict=True)):
        found = compare(f"{name}[{position}]", np.asarray(was), np.asarray(now), tolerance)
        if found is not None:
            return found
    return None


def _compare_exactly(name: str, expected: Array, actual: Array) -> Mismatch | None:
    wrong = np.asarray(expected != actual)
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return Mismatch(
        name,
        "differs",
        index,
        expected[index],
        actual[index],
        None,
        int(np.count_nonzero(wrong)),
        expected.size,
    )


def _compare_floats(
    name: str, expected: Array, actual: Array, tolerance: Tolerance, scale: float | None, slack: Slack
) -> Mismatch | None:
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    was, now = np.asarray(expected, wide), np.asarray(actual, wide)
    with np.errstate(all="ignore"):
        same = (was == now) | (np.isnan(was) & np.isnan(now))
        magnitude = np.abs(was)
        finite = magnitude[np.isfinite(magnitude)]
        top = max(float(finite.max()) if finite.size else 0.0, scale or 0.0)
        fixed = tolerance.absolute * min(1.0, top) + tolerance.scaled * top + tolerance.floor
        error = np.abs(was - now)
        excess = np.where(same, 0.0, error / (tolerance.relative * magnitude + fixed + slack))
        # A NaN or an infinity against anything else is as wrong as can be.
        excess = np.where(np.isfinite(excess), excess, np.inf)
        excess = np.where(np.isinf(slack), 0.0, excess)
    wrong = excess > 1.0
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), excess.shape))
    base = float(magnitude[index])
    relative = float(error[index]) / base if base else float("inf")
    return Mismatch(
        name,
        "differs",
        index,
        expected[index],
        actual[index],
        relative,
        int(np.count_nonzero(wrong)),
        expected.size,
    )
