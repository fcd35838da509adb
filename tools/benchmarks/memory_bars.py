"""What `bench-memory` has to show: figures of its results against bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fuseline.tools.benchmarks.memory_cases import ARENA, DEFAULT, counted_as

__all__ = ["Bar", "bars"]

Results = Mapping[str, Mapping[str, Any]]
"""What each worker found, by `part case batch contender`."""

#: case → (which of our steps without recompute, whose peak of torch, the share of it that the step may take)
_PLAIN = {
    "bert-4x256": (DEFAULT, "sdpa", 0.85),
    "vit-4x384": (DEFAULT, "sdpa", 0.85),
    "bert-12x768": (DEFAULT, "sdpa", 1.0),
    "gpt2-4x256": (DEFAULT, "eager", 0.55),
    "t5-4x256": ("chunked", "eager", 0.55),
}
#: case → how much longer a step may take whose layers are computed again
_LAYERS = {"bert-4x256": 1.25, "bert-12x768": 1.25, "vit-4x384": 1.25, "gpt2-4x256": 1.35}
_GROWTH = {"stock": 1.05, "training": 1.25}


@dataclass(frozen=True)
class Bar:
    """A figure and the most that it may be."""

    text: str
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.value <= self.limit


def bars(found: Results) -> Iterator[Bar]:
    """Everything that these results can be judged by."""
    for key, row in found.items():
        if "failed" in row:
            yield Bar(f"{key}: {row['failed']}", 1, 0)
    yield from _predictions(found)
    for case in dict.fromkeys(key.split()[1] for key in found):
        yield from _of_case(found, case)
    for key, row in found.items():
        part, case, _, contender = key.split()
        if part == "growth" and "growth" in row:
            runtime = "stock" if contender.endswith("-stock") else "training"
            text = f"{case} {contender}: growth of the process over the live peak on {row['onnxruntime']}"
            yield Bar(text, row["growth"] / row["alive"], _GROWTH[runtime])
            plain = found.get(f"growth {case} 8 plain-{contender.rpartition('-')[2]}", {}).get("state")
            yield Bar(f"{case} {contender}: state other than without a plan", row["state"] != plain, 0)
        if part == "lengths" and "slope" in row:
            share = row["slope"] * row["steps"] / 2 / row["resident"]
            yield Bar(f"{case} {contender}: growth over steps of changing lengths", share, 0.01)


def _predictions(found: Results) -> Iterator[Bar]:
    rows = [(key, row) for key, row in found.items() if key.startswith("peak") and "predicted" in row]
    for key, row in rows:
        _, case, batch, contender = key.split()
        if counted_as(contender) == "bytes":  # what is kept between steps is more than what is alive
            predicted, measured = row["predicted"], row["bytes"]
            text = f"{case} at {batch}, {contender}: predicted apart from measured"
            yield Bar(text, abs(predicted / measured - 1), 0.02)
            whole = (predicted + row["workspace"]) / (measured + row["scratch"])
            yield Bar(f"{text}, with workspace", abs(whole - 1), 0.02)


def _of_case(found: Results, case: str) -> Iterator[Bar]:
    def peak(contender: str) -> float | None:
        return found.get(f"peak {case} 8 {contender}", {}).get(counted_as(contender))

    def seconds(contender: str) -> float | None:
        return found.get(f"time {case} 8 {contender}", {}).get("seconds")

    def ratio(text: str, one: float | None, other: float | None, limit: float) -> Iterator[Bar]:
        if one is not None and other is not None:
            yield Bar(f"{case}: {text}", one / other, limit)

    plain = peak("plain")
    if case in _PLAIN:
        name, whose, limit = _PLAIN[case]
        text = f"peak of {name}, without recompute, over torch {whose}"
        yield from ratio(text, peak(name), peak(whose), limit)
        text = f"time of {name} over a step with the runtime's arena"
        yield from ratio(text, seconds(name), seconds(ARENA), 1 / 0.98)
    if case in _LAYERS:
        chunked = "chunked-" if case == "gpt2-4x256" else ""  # else the scores of the vocabulary are the peak
        for what, share, longer in (("cheap", 0.8, 1.1), ("layers", 0.4, _LAYERS[case])):
            name = f"{chunked}{what}-early"
            yield from ratio(f"peak of {name} over plain", peak(name), plain, share)
            yield from ratio(f"time of {name} over the default", seconds(name), seconds(DEFAULT), longer)
    if case == "bert-12x768":
        torch = "checkpointing"
        name = "most-early"
        yield from ratio(f"peak of {name} over torch {torch}", peak(name), peak(torch), 0.25)
        yield from ratio(f"time of {name} over torch {torch}", seconds(name), seconds(torch), 1.0)
    ours, theirs = (found.get(f"capacity {case} 0 {name}", {}).get("batch") for name in ("ours", "eager"))
    yield from ratio("three times torch eager's largest batch over ours", theirs and 3 * theirs, ours, 1.0)
