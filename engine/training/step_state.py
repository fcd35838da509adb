"""The memory of a training step by original name: parameters, gradients, moments, the count of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.errors import FuselineError, ModelError
from fuseline.engine.execution.state import State, as_array, initial
from fuseline.engine.model import Model
from fuseline.engine.training import optimizer as names
from fuseline.engine.training import settings
from fuseline.engine.training.gradients import gradient_name
from fuseline.engine.training.optimizer import updates

__all__ = ["StepState"]

Array = npt.NDArray[Any]


class StepState(State):
    """Allocated for one differentiated model; names are those of the original parameters."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._model = model
        self._optimizer = model.facts.training.optimizer
        self._updates = updates(model)
        self._allocate()
        self.targets = self._share_outputs()
        """Output → the state whose memory it is written to."""

    @property
    def parameters(self) -> dict[str, Array]:
        return self.originals(self._model.parameters)

    @property
    def gradients(self) -> dict[str, Array]:
        return self.originals(self._model.parameters, "_grad")

    def moments(self, kind: str) -> dict[str, Array]:
        return self.originals(self._model.parameters, f".{kind}")

    @property
    def steps(self) -> int:
        return int(self.arrays[names.STEP][0]) if self._optimizer is not None else 0

    def zero_gradients(self) -> None:
        """Clear what was accumulated."""
        for output, buffer in self._updates.items():
            if output.endswith("_grad"):
                self.arrays[buffer][...] = 0

    def optimizer_state(self) -> dict[str, Any]:
        """`{"step": n, "state": {original name: {moment: array}}}`; empty without an optimizer."""
        if self._optimizer is None:
            return {}
        state: dict[str, dict[str, Array]] = {}
        for kind in self._kinds():
            for name, view in self.moments(kind).items():
                state.setdefault(name, {})[kind] = np.array(view)
        return {"step": self.steps, "state": state}

    def load_optimizer_state(self, saved: Mapping[str, Any]) -> None:
        """Take over what `optimizer_state` gave: all of it, or nothing and an error."""
        if self._optimizer is None:
            raise FuselineError("the graph has no optimizer to load a state into")
        step, state = saved.get("step"), saved.get("state")
        if not isinstance(step, int | np.integer) or isinstance(step, bool) or step < 0:
            raise ModelError(f"an optimizer's state has a whole number of steps, not {step!r}")
        if not isinstance(state, Mapping):
            raise ModelError("an optimizer's state has a mapping from parameter names under 'state'")
        targets = {kind: self.moments(kind) for kind in self._kinds()}
        writes = [
            (view, _moment(state, name, kind, view))
            for kind, views in targets.items()
            for name, view in views.items()
        ]
        unknown = [n for n in state if not any(n in views for views in targets.values())]
        if unknown and targets:
            raise ModelError(f"the optimizer has no parameter {unknown[0]!r}")
        self.arrays[names.STEP][:] = step
        for view, array in writes:
            view[...] = array

    def _kinds(self) -> list[str]:
        """The optimizer's moments by name."""
        assert self._optimizer is not None
        return [group[0].removeprefix(f"{self._optimizer.values[0]}.") for group in self._optimizer.moments]

    def _allocate(self) -> None:
        graph = self._model.graph
        held = {*self._updates.values()} | {str(p.value) for p in self._model.parameters if p.value}
        for name in graph.initializers:
            if name in held:
                self.add(name, initial(self._model, name))
        if self._optimizer is not None:
            settings.allocate(self, self._optimizer)
        inputs = {v.name: v for v in graph.inputs}
        moments = [m for group in self._optimizer.moments for m in group] if self._optimizer else []
        for name in (*moments, *self._updates.values()):
            if name in inputs and name not in self.arrays:
                self.add_zeros(inputs[name])
        # A state that is only ever written has no place in the graph, but one here.
        outputs = {str(v.name): v for v in graph.outputs}
        for output, name in self._updates.items():
            if name not in self.arrays:
                self.add_zeros(outputs[output], name)

    def _share_outputs(self) -> dict[str, str]:
        targets = dict(self._updates)
        outputs = {str(v.name): v for v in self._model.graph.outputs}
        for value in self._model.parameters.trainable_values():
            name = gradient_name(value)
            if name in outputs and name not in targets:
                self.add_zeros(outputs[name])
                targets[name] = name
            elif name in targets:
                # The accumulated gradient is its buffer.
                self.add(name, self.arrays[targets[name]])
        return targets


def _moment(state: Mapping[str, Any], name: str, kind: str, view: Array) -> Array:
    if name not in state or kind not in state[name]:
        raise ModelError(f"the optimizer's state has no {kind!r} of {name!r}")
    array = as_array(f"{kind} of {name}", state[name][kind])
    if array.shape != view.shape:
        raise ModelError(f"{kind!r} of {name!r} has shape {array.shape}, and the graph's {view.shape}")
    return array
