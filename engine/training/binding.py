"""Feeding a session: state is bound once, a batch for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from fuseline.engine.errors import ModelError
from fuseline.engine.training.state import State, as_array

__all__ = ["Binding"]

Array = npt.NDArray[Any]

_TYPES: dict[str, type[Any]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}


class Binding:
    """A session with the state's memory bound to its inputs, and to the outputs that overwrite it."""

    def __init__(self, session: ort.InferenceSession, state: State, targets: Mapping[str, str]) -> None:
        self._session = session
        self._state = state
        self._targets = targets
        self._version = -1
        self._fetched: tuple[str, ...] = ()
        self._io: Any = None
        types = {i.name: _TYPES.get(i.type) for i in session.get_inputs()}
        self._inputs = {name: dtype for name, dtype in types.items() if name not in state.arrays}
        self._held = [name for name in types if name in state.arrays]
        self._outputs = [o.name for o in session.get_outputs()]

    @property
    def inputs(self) -> list[str]:
        """The inputs that every run has to feed."""
        return list(self._inputs)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Array]:
        """Run on a batch; gives copies of the outputs asked for."""
        self._bind(tuple(name for name in outputs if name not in self._targets))
        for name, dtype in self._inputs.items():
            if name not in feeds:
                raise ModelError(f"the batch has no {name!r}; the graph needs {', '.join(self._inputs)}")
            array = np.ascontiguousarray(as_array(feeds[name]), dtype)
            array = array.reshape(np.shape(feeds[name]))
            self._io.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        for name in self._fetched:
            # What the last run made would be written over, and refused if its shape is another.
            self._io.bind_output(name)
        try:
            self._session.run_with_iobinding(self._io)
        except Exception as error:
            raise ModelError(f"ONNX Runtime {ort.__version__} failed in the step: {_first(error)}") from error
        values = self._io.get_outputs()
        made = {name: values[i].numpy() for i, name in enumerate(self._fetched)}
        return {name: made[name] if name in made else self._written(name) for name in outputs}

    def _written(self, output: str) -> Array:
        return np.array(self._state.arrays[self._targets[output]])

    def _bind(self, fetched: tuple[str, ...]) -> None:
        if self._version == self._state.version and self._fetched == fetched:
            return
        unknown = [name for name in fetched if name not in self._outputs]
        if unknown:
            raise ModelError(f"the graph has no output {unknown[0]!r}; it has {', '.join(self._outputs)}")
        self._io = self._session.io_binding()
        for name in self._held:
            self._io.bind_ortvalue_input(name, self._state.bound[name])
        for name in fetched:
            self._io.bind_output(name)
        for name, state in self._targets.items():
            if name in self._outputs:
                self._io.bind_ortvalue_output(name, self._state.bound[state])
        self._version, self._fetched = self._state.version, fetched


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:400]
