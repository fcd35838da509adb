"""Feeding a session with numpy: the state is bound once, a batch for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from fuseline.engine.errors import ModelError
from fuseline.engine.execution.plan import Plan
from fuseline.engine.execution.runner import Runner
from fuseline.engine.execution.state import State, as_array

__all__ = ["BoundRunner"]

Array = npt.NDArray[Any]


class BoundRunner(Runner):
    """The state's memory is bound to its inputs, and to the outputs that overwrite it."""

    def __init__(self, plan: Plan, state: State) -> None:
        super().__init__(plan)
        self._state = state
        self._version = -1
        self._fetched: tuple[str, ...] = ()
        self._io: Any = None
        self._inputs = {n: _numpy_type(kind) for n, kind in self._types.items() if n not in state.arrays}
        self._held = [name for name in self._types if name in state.arrays]

    @property
    def inputs(self) -> list[str]:
        """The inputs that every run has to feed."""
        return list(self._inputs)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Array]:
        """Run on a batch; gives copies of the outputs asked for."""
        targets = self.plan.targets
        self._bind(tuple(name for name in outputs if name not in targets))
        # ONNX Runtime reads this memory when it runs, and holds none of it.
        fed: dict[str, Array] = {}
        for name, dtype in self._inputs.items():
            if name not in feeds:
                raise ModelError(f"the batch has no {name!r}; the graph needs {', '.join(self._inputs)}")
            fed[name] = fitting(name, as_array(name, feeds[name]), dtype)
            self._io.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(fed[name]))
        for name in self._fetched:
            # What the last run made would be written over, and refused if its shape is another.
            self._io.bind_output(name)
        try:
            with self.placing((self._fetched, *(array.shape for array in fed.values()))):
                self._session.run_with_iobinding(self._io)
        except Exception as error:
            raise self.failure(error) from error
        values = self._io.get_outputs()
        made = {name: values[i].numpy() for i, name in enumerate(self._fetched)}
        return {name: made[name] if name in made else self._written(name) for name in outputs}

    def _written(self, output: str) -> Array:
        return np.array(self._state.arrays[self.plan.targets[output]])

    def _bind(self, fetched: tuple[str, ...]) -> None:
        if self._version == self._state.version and self._fetched == fetched:
            return
        self.check_outputs(fetched)
        self._io = self._session.io_binding()
        for name in self._held:
            self._io.bind_ortvalue_input(name, self._state.bound[name])
        for name in fetched:
            self._io.bind_output(name)
        for name, state in self.plan.targets.items():
            if name in self.produced:
                self._io.bind_ortvalue_output(name, self._state.bound[state])
        self._version, self._fetched = self._state.version, fetched


def _numpy_type(kind: ir.DataType | None) -> np.dtype[Any] | None:
    """What arrays are converted to; None of what numpy has no numbers for, such as text and bfloat16."""
    dtype = kind.numpy() if kind is not None else None
    return dtype if dtype is not None and dtype.kind in "biuf" else None


def fitting(name: str, given: Array, dtype: np.dtype[Any] | None) -> Array:
    """The array in the input's type and one piece of memory; nothing that the type cannot hold passes."""
    if dtype is not None and given.dtype != dtype and not _fits(given, dtype):
        raise ModelError(
            f"{name!r} holds {given.dtype}, and the graph takes {dtype}, which would change it",
            hint=f"convert it first: batch[{name!r}].astype({dtype.name!r})",
        )
    array = np.ascontiguousarray(given, dtype)
    return array.reshape(given.shape)


def _fits(given: Array, dtype: np.dtype[Any]) -> bool:
    """Whether values survive: integers among integers, numbers into floats; never text or objects."""
    if given.dtype.kind not in "biuf" or (given.dtype.kind == "f" and dtype.kind in "biu"):
        return False
    if given.dtype.kind in "iu" and dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return given.size == 0 or bool(given.min() >= bounds.min and given.max() <= bounds.max)
    # A mask of numbers is a mask if it is one.
    return dtype.kind != "b" or bool(np.isin(given, (0, 1)).all())
