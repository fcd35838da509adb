"""The calibration table: what was seen of every value, as a file that can be looked at and used again."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Iterator
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
_LARGEST = float(np.finfo(np.float32).max)


_RANGES = ("min", "max", "average-min", "average-max")
_FIELDS = (*_RANGES, "batches", "not-finite", "channels", "histogram")


def _check_fields(row: Any, label: str, names: Collection[str]) -> None:
    if not isinstance(row, dict):
        raise ValueError(f"{label} is {row!r}, no mapping")
    for name in names:
        if name not in row:
            raise ValueError(f"{label} has no {name!r}")
    for name in row:
        if name not in names:
            raise ValueError(f"{label} has {name!r}, which nothing is known of")


def _number(value: Any, label: str, largest: float = _LARGEST) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{label!r} is {value!r}, no number")
    if not abs(value) <= largest:
        raise ValueError(f"{label!r} is {value}, no finite number of float32")
    return float(value)


def _count(value: Any, label: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{label!r} is {value!r}, no number of times")
    return value


def _histogram(row: Any) -> Histogram:
    _check_fields(row, "'histogram'", ("low", "width", "counts"))
    # Bins may reach beyond what float32 holds.
    low, width = (_number(row[k], k, largest=sys.float_info.max) for k in ("low", "width"))
    made = Histogram(low, width)
    for pair in row["counts"] if isinstance(row["counts"], list) else [row["counts"]]:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"'counts' has {pair!r}, no pair of a place and a count")
        place, count = (_count(number, "counts") for number in pair)
        if place >= BINS:
            raise ValueError(f"'counts' has the place {place}, and there are {BINS}")
        made.counts[place] = count
    if made.width < 0 or (made.counts.any() and not made.width):
        raise ValueError(f"'width' is {made.width:g}, no width of bins")
    return made


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
    def from_json(cls, row: Any) -> Statistics:
        """What a line of a table says; ValueError tells what is wrong with one that a person has edited."""
        _check_fields(row, "it", _FIELDS)
        batches, not_finite = (_count(row[k], k) for k in ("batches", "not-finite"))
        # Of a value that was never finite nothing is known.
        least, most, low, high = (
            (_number(row[k], k) for k in _RANGES) if batches else (math.inf, -math.inf, 0.0, 0.0)
        )
        histogram = _histogram(row["histogram"])
        if batches and not histogram.counts.any():
            raise ValueError("its histogram has no counts")
        if batches and (least > most or low > high):
            raise ValueError(f"its range begins at {max(least, low):g} and ends at {min(most, high):g}")
        channels = row["channels"]
        if channels is not None and not isinstance(channels, list):
            raise ValueError(f"'channels' is {channels!r}, no list of numbers")
        return cls(
            least,
            most,
            low,
            high,
            batches,
            not_finite,
            None if channels is None else np.array([_number(c, "channels") for c in channels], np.float32),
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
        rows, table = content.get("values"), cls()
        if not isinstance(rows, dict):
            raise FuselineError(f"{path} is a calibration table without values")
        for name, row in rows.items():
            try:
                table._values[name] = Statistics.from_json(row)
            except ValueError as error:
                raise FuselineError(
                    f"the calibration table {path} does not do for {name!r}: {error}",
                    hint="mend that line, or remove the file to calibrate again",
                ) from None
        return table
