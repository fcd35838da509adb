"""Criteria: limits that a behaviour report has to keep, from a YAML file, for continuous integration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fuseline.engine import options
from fuseline.engine.errors import FuselineError
from fuseline.engine.settings import read_yaml

__all__ = ["Criteria", "failures", "load_criteria"]


@dataclass(frozen=True)
class Criteria:
    """What is not given is not asked for. Drops are in points of accuracy."""

    accuracy_drop: float | None = None
    class_drop: float | None = None
    slice_drop: float | None = None
    agreement: float | None = None
    threshold_changes: float | None = None
    signal_to_noise: float | None = None
    size_ratio: float | None = None
    speed: float | None = None


def load_criteria(path: str | Path) -> Criteria:
    if not Path(path).exists():
        raise FuselineError(f"there is no criterion file {path}")
    content = read_yaml(Path(path), "criterion file")
    if not isinstance(content, dict):
        raise FuselineError(f"{path} holds no mapping of criteria")
    return Criteria(**options.bind(Criteria, str(path), content))


def failures(criteria: Criteria, report: dict[str, Any]) -> list[str]:
    """One sentence for each limit that is not kept, or that the report cannot tell."""
    found = []
    for item in fields(criteria):
        limit = getattr(criteria, item.name)
        if limit is None:
            continue
        name = options.kebab(item.name)
        try:
            measured, kept = _CHECKS[item.name](report, limit)
        except KeyError:
            found.append(f"{name}: the report does not tell, for want of labels, slices or classes")
            continue
        if not kept:
            found.append(f"{name} is {measured:.4g}, and {limit:g} was asked for")
    return found


def _worst(rows: list[dict[str, Any]]) -> float:
    if not rows:
        raise KeyError("rows")
    return max(-float(row["points"]) for row in rows)


def _at_most(value: float, limit: float) -> tuple[float, bool]:
    return value, value <= limit


def _at_least(value: float | None, limit: float) -> tuple[float, bool]:
    # None is noise that there is none of.
    return (float("inf"), True) if value is None else (value, value >= limit)


_CHECKS: dict[str, Callable[[dict[str, Any], float], tuple[float, bool]]] = {
    "accuracy_drop": lambda r, limit: _at_most(-r["accuracy"]["points"], limit),
    "class_drop": lambda r, limit: _at_most(_worst(r["classes"]), limit),
    "slice_drop": lambda r, limit: _at_most(_worst(r["slices"]), limit),
    "agreement": lambda r, limit: _at_least(r["agreement"], limit),
    "threshold_changes": lambda r, limit: _at_most(max(t["changed"] for t in r["thresholds"]), limit),
    "signal_to_noise": lambda r, limit: _at_least(r["signal_to_noise_db"], limit),
    "size_ratio": lambda r, limit: _at_most(r["size_ratio"], limit),
    "speed": lambda r, limit: _at_least(r["speed"], limit),
}
