"""The interface between an optimizer inside the graph and the step that feeds it: names and facts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model

__all__ = [
    "APPLIED",
    "APPLY",
    "GRADIENT_NORM",
    "GRADIENT_SCALE",
    "HYPER",
    "LEARNING_RATE",
    "MAX_NORM",
    "STEP",
    "WAITS_FOR",
    "WEIGHT_DECAY",
    "GraphOptimizer",
    "add_update",
    "updates",
]

LEARNING_RATE = "optimizer.learning_rate"
"""float64 [n], one per value, or [1]."""
WEIGHT_DECAY = "optimizer.weight_decay"
"""float64 [n], one per value, or [1]."""
HYPER = "optimizer.hyper"
"""float64: beta1, beta2, epsilon of AdamW; momentum, dampening of SGD."""
STEP = "optimizer.step"
"""int64 [1]: updates so far; counted up in place."""
MAX_NORM = "optimizer.max_norm"
"""float32 [1]: gradients are clipped to this global norm; 0 does not clip."""
GRADIENT_SCALE = "optimizer.gradient_scale"
"""float32 [1]: every gradient is multiplied by it first."""
APPLY = "optimizer.apply"
"""bool [1]: whether to update now; False only accumulates."""
APPLIED = "optimizer.applied"
GRADIENT_NORM = "optimizer.gradient_norm"
WAITS_FOR = "fuseline.waits_for"
"""Metadata of a node that makes the update wait for an output: that output's name."""

_FACT = "optimizer"
_UPDATES = "updates"


@dataclass(frozen=True)
class GraphOptimizer:
    """Which optimizer is in the graph, over which values, with which moments (inputs, one per value)."""

    kind: str
    values: list[str]
    moments: list[list[str]] = field(default_factory=list)
    accumulate: bool = False

    @classmethod
    def of(cls, model: Model) -> GraphOptimizer | None:
        """The optimizer that a pass put into the graph, or None."""
        fact: dict[str, Any] | None = model.facts.get(_FACT)
        return cls(**fact) if fact else None

    def record(self, model: Model) -> None:
        model.facts[_FACT] = asdict(self)


def updates(model: Model) -> dict[str, str]:
    """Output → the input or initializer whose memory it overwrites, once everything else has read it."""
    return dict(model.facts.get(_UPDATES, {}))


def add_update(model: Model, output: str, state: str) -> None:
    """Declare that `output` is the new content of `state`."""
    known = updates(model)
    if state in known.values():
        raise ModelError(f"{state!r} is updated twice in one step")
    model.facts[_UPDATES] = {**known, output: state}
