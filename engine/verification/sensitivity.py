"""How far a model's own results move when its inputs hardly do: what no rewrite can be blamed for.

A quantizer, an ArgMax or a difference of nearly equal numbers turns the last digit of its input into a step
of its output. The same model is run on inputs that differ by a tiny part, and what moves then is slack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.model import Model
from fuseline.engine.operators import Trait, record

__all__ = ["QUANTIZED_NUDGE", "Slack", "nudged", "quantizes", "slack_of"]

Array = npt.NDArray[Any]
Slack = Array | float
"""Per element, what may differ besides the tolerance; infinite for a result that says nothing."""

QUANTIZED_NUDGE = 1e-4
"""The part by which the inputs of a quantized model are moved: enough to bring numbers that lie close to the
border of a step over it."""

# One element may move a few times as far as it was seen to; another, as far as the worst that was seen.
_ELEMENT_FACTOR = 16.0
_TENSOR_FACTOR = 2.0


def quantizes(model: Model) -> bool:
    """Whether the model rounds activations to steps, so that it answers in steps itself."""
    found = (record(node) for node in model.nodes())
    return any(operator is not None and operator.has(Trait.ROUNDS) for operator in found)


def nudged(feeds: Mapping[str, Array], relative: float, seed: int) -> dict[str, Array]:
    """The inputs with every float moved by up to the relative part; other types as they are."""
    chance = np.random.default_rng(seed)
    return {name: _nudge(array, relative, chance) for name, array in feeds.items()}


def _nudge(array: Array, relative: float, chance: np.random.Generator) -> Array:
    if array.dtype.kind != "f":
        return array
    with np.errstate(all="ignore"):
        moved = array.astype(np.float64) * (1 + relative * chance.uniform(-1, 1, array.shape))
        return np.asarray(moved.astype(array.dtype))


def slack_of(expected: Any, others: Sequence[Any]) -> Slack:
    """The slack of one output, from its results on nudged inputs."""
    if not isinstance(expected, np.ndarray) or not others:
        return 0.0
    if any(not isinstance(o, np.ndarray) or o.shape != expected.shape for o in others):
        return float("inf")
    if expected.dtype.kind not in "fc":
        moved = any(bool(np.any(o != expected)) for o in others)
        return float("inf") if moved else 0.0
    with np.errstate(all="ignore"):
        base = expected.astype(np.float64 if expected.dtype.kind == "f" else np.complex128)
        same = [(o == expected) | (np.isnan(o) & np.isnan(expected)) for o in others]
        moves = [
            np.where(s, 0.0, np.abs(o.astype(base.dtype) - base)) for o, s in zip(others, same, strict=True)
        ]
    worst = np.max(moves, axis=0) if moves else np.zeros(base.shape)
    # A NaN or an infinity that comes and goes says nothing about its element.
    worst = np.where(np.isfinite(worst), worst, np.inf)
    finite = worst[np.isfinite(worst)]
    top = float(finite.max()) if finite.size else 0.0
    return np.asarray(_ELEMENT_FACTOR * worst + _TENSOR_FACTOR * top)
