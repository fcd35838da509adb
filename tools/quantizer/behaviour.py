"""How a quantized model behaves beside its float one: a release is judged by more than one number."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.calibration.collect import fetching
from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.tools.quantizer.data import Batches
from fuseline.tools.quantizer.metrics import Predict, main_output, signal_to_noise

__all__ = ["behaviour", "latency", "layer_noise"]

Array = npt.NDArray[Any]
THRESHOLDS = (0.5, 0.7, 0.9, 0.99)
_EXAMPLES = 20
_WORST = 10
_SHOWN = 12


def behaviour(
    before: Predict, after: Predict, batches: Batches, slices: Mapping[str, Array] | None = None
) -> dict[str, Any]:
    """Agreement, noise, flips and drift; with labels also accuracy, by class and by named slice."""
    first, second = ([main_output(f(b)) for b in batches.inputs()] for f in (before, after))
    was, now = _joined(first), _joined(second)
    made: dict[str, Any] = {
        "examples": len(was),
        "data": batches.origin,
        "output": list(was.shape[1:]),
        "signal_to_noise_db": _finite(signal_to_noise(was, now)),
        "largest_difference": float(np.abs(was - now).max(initial=0.0)),
    }
    if was.ndim < 2 or was.shape[-1] < 2:
        return made
    old, new = was.argmax(-1).reshape(len(was), -1), now.argmax(-1).reshape(len(now), -1)
    made["agreement"] = float((old == new).mean())
    made["thresholds"] = _thresholds(_softmax(was), _softmax(now))
    labels = _labels(batches, old.shape)
    made["flips"] = _flips(old, new, _softmax(was), _softmax(now), labels)
    for row in made["flips"]["examples"]:
        row["content"] = _content(batches, [len(p) for p in _alike(first)], row["example"])
    if labels is not None:
        made |= _accuracy(old, new, labels, slices or {})
    return made


def _joined(parts: list[Array]) -> Array:
    return np.concatenate(_alike(parts))


def _alike(parts: list[Array]) -> list[Array]:
    """All examples of one shape; of unequal lengths, each position is an example of its own."""
    if len({p.shape[1:] for p in parts}) > 1:
        parts = [p.reshape(-1, p.shape[-1]) for p in parts]
    if len({p.shape[1:] for p in parts}) > 1:
        parts = [p.reshape(-1) for p in parts]
    return parts


def _content(batches: Batches, counts: list[int], example: int) -> str:
    """What a person recognises an example by: its text, or else the beginning of its first input."""
    ends = np.cumsum(counts)
    place = int(np.searchsorted(ends, example, side="right"))
    batch, offset = batches.items[place], example - int(ends[place] - counts[place])
    given = batch.texts if batch.texts is not None else next(iter(batch.inputs.values()), None)
    if given is None or not np.ndim(given) or not len(given):
        return ""
    row = given[offset * len(given) // counts[place]]
    words = [str(row)] if np.ndim(row) == 0 else [f"{v:.6g}" for v in np.ravel(row)[:_SHOWN]]
    return " ".join(words) + (" …" if np.size(row) > _SHOWN else "")


def _labels(batches: Batches, shape: tuple[int, ...]) -> Array | None:
    if not batches.labelled:
        return None
    labels = np.concatenate([np.ravel(b.labels) for b in batches if b.labels is not None])
    return labels.reshape(shape) if labels.size == np.prod(shape) else None


def _accuracy(old: Array, new: Array, labels: Array, slices: Mapping[str, Array]) -> dict[str, Any]:
    right = {"float": old == labels, "quantized": new == labels}
    classes = [_part(f"class {c}", right, labels == c) for c in np.unique(labels)]
    parts = []
    for name, members in slices.items():
        if len(members) != len(labels):
            raise FuselineError(f"slice {name!r} is of {len(members)} examples, and there are {len(labels)}")
        parts.append(_part(name, right, np.broadcast_to(members.astype(bool)[:, None], labels.shape)))
    worst = sorted(classes, key=lambda row: row["points"])[:_WORST]
    return {
        "accuracy": _part("all", right, np.ones(labels.shape, bool)),
        "classes": classes,
        "worst_classes": [row["name"] for row in worst if row["points"] < 0],
        "slices": parts,
    }


def _part(name: str, right: Mapping[str, Array], members: Array) -> dict[str, Any]:
    count = int(members.sum())
    before, after = (float(right[k][members].mean()) if count else 0.0 for k in ("float", "quantized"))
    points = 100 * (after - before)
    return {"name": name, "examples": count, "float": before, "quantized": after, "points": points}


def _flips(old: Array, new: Array, was: Array, now: Array, labels: Array | None) -> dict[str, Any]:
    """The predictions that changed, the most decided ones first."""
    places = np.argwhere(old != new)
    order = sorted(places, key=lambda place: -_top(was, old, place))
    examples = []
    for place in order[:_EXAMPLES]:
        row = {
            "example": int(place[0]),
            "float": int(old[tuple(place)]),
            "quantized": int(new[tuple(place)]),
            "probability_float": _top(was, old, place),
            "probability_quantized": _top(now, new, place),
        }
        examples.append(row if labels is None else {**row, "label": int(labels[tuple(place)])})
    return {"count": len(places), "share": len(places) / max(1, old.size), "examples": examples}


def _top(probabilities: Array, chosen: Array, place: Array) -> float:
    flat = probabilities.reshape(*chosen.shape, -1)
    return float(flat[tuple(place)][chosen[tuple(place)]])


def _thresholds(was: Array, now: Array) -> list[dict[str, Any]]:
    """Decisions of the kind "act if the probability is at least t": how many there are, and how many change.

    Of two classes the probability is the second one's, of more it is the greatest.
    """
    first, second = (p[..., 1] if p.shape[-1] == 2 else p.max(-1) for p in (was, now))
    return [
        {
            "threshold": t,
            "float": float((first >= t).mean()),
            "quantized": float((second >= t).mean()),
            "changed": float(((first >= t) != (second >= t)).mean()),
        }
        for t in THRESHOLDS
    ]


def layer_noise(before: Model, after: Model, batches: Batches) -> list[dict[str, Any]]:
    """Signal-to-noise of every value that both graphs have, in the order of the graph."""
    have = {v.name for node in after.graph for v in node.outputs}
    floats = [
        v.name
        for node in before.graph
        for v in node.outputs
        if v.name in have and v.dtype is not None and v.dtype.is_floating_point()
    ]
    names = [n for n in floats if n]
    if not names:
        return []
    batch = list(batches.first(1).inputs())
    was, now = (next(iter(fetching(m, batch, names))) for m in (before, after))
    return [
        {"value": n, "signal_to_noise_db": _finite(signal_to_noise(was[n], now[n]))}
        for n in names
        if was[n].size and was[n].shape == now[n].shape
    ]


def latency(before: Predict, after: Predict, batches: Batches, rounds: int = 7) -> float:
    """How many times as fast the quantized model is on the first batch; the two take turns."""
    batch = next(iter(batches.inputs()))
    samples: dict[str, list[float]] = {"float": [], "quantized": []}
    for _ in range(rounds):
        for name, predict in (("float", before), ("quantized", after)):
            predict(batch)
            began = time.perf_counter()
            predict(batch)
            samples[name].append(time.perf_counter() - began)
    return median(samples["float"]) / median(samples["quantized"])


def _softmax(logits: Array) -> Array:
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    made: Array = shifted / shifted.sum(-1, keepdims=True)
    return made


def _finite(number: float) -> float | None:
    """JSON has no infinity: None where there is no noise at all."""
    return number if np.isfinite(number) else None
