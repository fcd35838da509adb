"""The interface between an optimizer inside the graph and the step that feeds it: names and updates."""

from __future__ import annotations

from dataclasses import replace

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


def updates(model: Model) -> dict[str, str]:
    """Output → the input or initializer whose memory it overwrites, once everything else has read it."""
    return dict(model.facts.training.updates)


def add_update(model: Model, output: str, state: str) -> None:
    """Declare that `output` is the new content of `state`."""
    known = updates(model)
    if state in known.values():
        raise ModelError(f"{state!r} is updated twice in one step")
    model.facts.training = replace(model.facts.training, updates={**known, output: state})
