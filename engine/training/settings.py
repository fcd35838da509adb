"""The settings of an optimizer inside the graph, as the arrays that the graph reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fuseline.engine.errors import ModelError
from fuseline.engine.execution.state import State
from fuseline.engine.facts import GraphOptimizer
from fuseline.engine.parameters import ParameterMap
from fuseline.engine.training import optimizer as names

__all__ = ["OptimizerSettings"]


@dataclass
class OptimizerSettings:
    """What may change from step to step; a rate is one number, or a mapping from original names.

    The defaults are torch's. `momentum` and `dampening` concern SGD, `betas` and `epsilon` AdamW.
    """

    learning_rate: float | Mapping[str, float] = 1e-3
    weight_decay: float | Mapping[str, float] = 1e-2
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    momentum: float = 0.9
    dampening: float = 0.0
    max_norm: float = 0.0
    gradient_scale: float = 1.0

    def write(self, state: State, optimizer: GraphOptimizer, parameters: ParameterMap) -> None:
        """Put the settings where the graph reads them."""
        arrays = state.arrays
        arrays[names.LEARNING_RATE][:] = _per_value(self.learning_rate, optimizer, parameters)
        arrays[names.WEIGHT_DECAY][:] = _per_value(self.weight_decay, optimizer, parameters)
        hyper = (*self.betas, self.epsilon) if optimizer.kind == "adamw" else (self.momentum, self.dampening)
        arrays[names.HYPER][:] = hyper
        arrays[names.MAX_NORM][:] = self.max_norm
        arrays[names.GRADIENT_SCALE][:] = self.gradient_scale


def allocate(state: State, optimizer: GraphOptimizer) -> None:
    """Memory for the optimizer's own inputs."""
    count = len(optimizer.values)
    state.add(names.LEARNING_RATE, np.zeros(count))
    state.add(names.WEIGHT_DECAY, np.zeros(count))
    state.add(names.HYPER, np.zeros(3 if optimizer.kind == "adamw" else 2))
    state.add(names.STEP, np.zeros(1, np.int64))
    state.add(names.MAX_NORM, np.zeros(1, np.float32))
    state.add(names.GRADIENT_SCALE, np.ones(1, np.float32))
    state.add(names.APPLY, np.ones(1, np.bool_))


def _per_value(
    rate: float | Mapping[str, float], optimizer: GraphOptimizer, parameters: ParameterMap
) -> float | list[float]:
    if not isinstance(rate, Mapping):
        return rate
    made = []
    for value in optimizer.values:
        rates = {rate[p.name] for p in parameters.of_value(value) if p.name in rate}
        if len(rates) != 1:
            members = ", ".join(p.name for p in parameters.of_value(value))
            raise ModelError(
                f"{members} share one value of the graph and need one rate, not {sorted(rates)}",
                hint="give all of them the same rate, or train without packing them",
            )
        made.append(rates.pop())
    return made
