"""The calibration table: what was seen of every value, as a file that can be looked at and used again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.calibration.histogram import BINS, Histogram
from fuseline.engine.errors import FuselineError
from fuseline.engine.files import write_text

__all__ = ["CalibrationTable", "Statistics"]

Array = npt.NDArray[Any]
_FORMAT = "fuseline calibration 1"
# How much a batch counts in the moving average, as others have it.
_MOMENTUM = 0.01


@dataclass
class Statistics:
    """What was seen of one value. `channels` is the largest magnitude of each entry of the last axis."""

    least: float = float("inf")
    most: float = float("-inf")
    average_least: float = 0.0
    average_most: float = 0.0
    batches: int = 0
    not_finite: int = 0
    channels: Array | None = None
    histogram: Histogram = field(default_factory=Histogram)

    def see(self, array: Array, *, channels: bool = False) -> None:
        """Take one batch into account; NaN and infinities are only counted."""
        finite = np.isfinite(array)
        if not finite.all():
            self.not_finite += int(array.size - np.count_nonzero(finite))
            array = np.where(finite, array, 0.0) if channels else array[finite]
        if not array.size:
            return
        least, most = float(array.min()), float(array.max())
        self.least, self.most = min(self.least, least), max(self.most, most)
        weight = _MOMENTUM if self.batches else 1.0
        self.average_least += weight * (least - self.average_least)
        self.average_most += weight * (most - self.average_most)
        self.batches += 1
        self.histogram.add(array)
        if channels and array.ndim:
            largest = np.abs(array.reshape(-1, array.shape[-1])).max(axis=0)
            known = self.channels
            # A last axis of varying length has no channels.
            same = known is None or len(known) == len(largest)
            self.channels = (largest if known is None else np.maximum(known, largest)) if same else known

    def to_json(self) -> dict[str, Any]:
        counts = self.histogram.counts
        return {
            "min": self.least,
            "max": self.most,
            "average-min": self.average_least,
            "average-max": self.average_most,
            "batches": self.batches,
            "not-finite": self.not_finite,
            "channels": None if self.channels is None else [float(f"{c:.6g}") for c in self.channels],
            "histogram": {
                "low": self.histogram.low,
                "width": self.histogram.width,
                # Most bins are empty: [place, count] pairs of the others.
                "counts": [[int(i), int(counts[i])] for i in np.flatnonzero(counts)],
            },
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Statistics:
        histogram = Histogram(row["histogram"]["low"], row["histogram"]["width"])
        for place, count in row["histogram"]["counts"]:
            histogram.counts[place] = count
        assert len(histogram.counts) == BINS
        channels = row.get("channels")
        return cls(
            row["min"],
            row["max"],
            row["average-min"],
            row["average-max"],
            row["batches"],
            row["not-finite"],
            None if channels is None else np.asarray(channels, np.float32),
            histogram,
        )


class CalibrationTable:
    """Statistics by the name of the value."""

    def __init__(self) -> None:
        self._values: dict[str, Statistics] = {}

    def __contains__(self, name: str | None) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, name: str) -> Statistics:
        return self._values.setdefault(name, Statistics())

    def get(self, name: str | None) -> Statistics | None:
        return self._values.get(name or "")

    def save(self, path: str | Path) -> None:
        """One value a line, so that a person can read it and a diff shows what changed."""
        lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v.to_json())}" for k, v in self._values.items())
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, f'{{"format": "{_FORMAT}", "values": {{\n{lines}\n}}}}\n')

    @classmethod
    def load(cls, path: str | Path) -> CalibrationTable:
        try:
            content = json.loads(Path(path).read_text())
        except FileNotFoundError:
            raise FuselineError(f"there is no calibration table {path}") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise FuselineError(f"{path} is no calibration table: {error}") from error
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise FuselineError(f"{path} is no calibration table of the form {_FORMAT!r}")
        table = cls()
        table._values = {k: Statistics.from_json(v) for k, v in content["values"].items()}
        return table
