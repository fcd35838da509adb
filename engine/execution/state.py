"""Memory that a training step works on: parameters, buffers, moments and gradients, by graph value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from fuseline.engine.errors import ModelError, did_you_mean
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter, ParameterMap

__all__ = ["State", "as_array"]

Array = npt.NDArray[Any]


class State:
    """Arrays by value name, each with the ONNX Runtime value that shares its memory."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.bound: dict[str, Any] = {}
        self.version = 0
        """Counts changes of address, after which bindings must be renewed."""

    def add(self, name: str, array: Array) -> None:
        """Work on this memory from now on."""
        array = np.require(array, requirements=["C", "W", "A"])
        if array.ndim == 0:
            array = array.reshape(())
        self.arrays[name] = array
        self.bound[name] = ort.OrtValue.ortvalue_from_numpy(array)
        self.version += 1

    def add_zeros(self, value: ir.Value, name: str | None = None) -> None:
        """Fresh zeros of a value's type and shape, under its name or another."""
        assert value.name is not None
        assert value.dtype is not None
        assert value.shape is not None
        self.add(name or value.name, np.zeros(value.shape.numpy(), value.dtype.numpy()))

    def load(self, parameters: ParameterMap, originals: Mapping[str, Any], *, strict: bool) -> None:
        """Copy original parameters into their graph values: all of them, or none and an error."""
        given = {name: as_array(name, tensor) for name, tensor in originals.items()}
        unknown = [name for name in given if name not in parameters]
        if unknown:
            raise ModelError(
                f"the model has no parameter {unknown[0]!r} ({len(unknown)} unknown in all)",
                hint=did_you_mean(unknown[0], [p.name for p in parameters]),
            )
        for name, array in given.items():
            _check_shape(parameters, name, array)
        held = [p for p in parameters if p.value in self.arrays]
        by_content = {(p.value, p.steps) for p in held if p.name in given}
        missing = [p.name for p in held if (p.value, p.steps) not in by_content]
        if strict and missing:
            raise ModelError(
                f"the state has no {missing[0]!r} ({len(missing)} missing in all)",
                hint="pass strict=False to keep what the step has for them",
            )
        _check_tied([p for p in held if p.name in given], given)
        for parameter in held:
            if parameter.name in given:
                self._write(parameters, parameter, given)

    def _write(self, parameters: ParameterMap, parameter: Parameter, given: Mapping[str, Array]) -> None:
        assert parameter.value is not None
        target = self.arrays[parameter.value]
        if parameter.is_view:
            # A view of the graph value in the original layout: writing to it writes the value.
            parameter.from_graph(target)[...] = given[parameter.name]
            return
        missing = [p.name for p in parameters.of_value(parameter.value) if p.name not in given]
        if missing:
            raise ModelError(
                f"{parameter.name!r} can only be written together with {missing[0]!r}, which shares its value"
            )
        target[...] = parameters.value_content(parameter.value, given)

    def originals(self, parameters: ParameterMap, suffix: str = "") -> dict[str, Array]:
        """Original name → its memory in the original layout; `suffix` selects moments or gradients."""
        return {
            p.name: (p.gradient_from_graph if suffix else p.from_graph)(self.arrays[f"{p.value}{suffix}"])
            for p in parameters
            if p.value is not None and f"{p.value}{suffix}" in self.arrays
        }

    def adopt(self, parameters: ParameterMap, tensors: Mapping[str, Any]) -> None:
        """Work on the callers' own memory where a value's layout is the original one; copy in elsewhere.

        Cheap when nothing moved, so that it can be called before every step. What cannot be shared is refused
        before anything is: a tensor of another shape or type, in pieces, or read-only.
        """
        moved: list[tuple[Parameter, Array]] = []
        for name, tensor in tensors.items():
            parameter = parameters[name]
            if parameter.value is None or parameter.value not in self.arrays:
                continue
            theirs, ours = as_array(name, tensor), self.arrays[parameter.value]
            if parameter.is_view and _same_memory(theirs, parameter.from_graph(ours)):
                continue
            _check_shape(parameters, name, theirs)
            if not parameter.steps:
                _check_shareable(name, theirs, ours)
            moved.append((parameter, theirs))
        for parameter, theirs in moved:
            if not parameter.steps:
                self.add(str(parameter.value), theirs)
            else:
                self._write(parameters, parameter, {n: as_array(n, t) for n, t in tensors.items()})


def as_array(name: str, tensor: Any) -> Array:
    """A numpy array over the same memory: of an array, or of a torch tensor on the CPU."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if hasattr(tensor, "detach"):
        array: Array = tensor.detach().numpy()
        return array
    array = np.asarray(tensor)
    if array.dtype.kind not in "biuf":
        raise ModelError(f"{name!r} is a {type(tensor).__name__}, and neither an array nor a tensor")
    return array


def initial(model: Model, name: str) -> Array:
    """A private copy of an initializer."""
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return np.array(tensor.numpy(), order="C", copy=True)


def _check_shareable(name: str, theirs: Array, ours: Array) -> None:
    reason = None
    if theirs.dtype != ours.dtype:
        reason = f"holds {theirs.dtype}, and the graph works on {ours.dtype}"
    elif not theirs.flags.c_contiguous:
        reason = "is not one piece of memory"
    elif not theirs.flags.writeable:
        reason = "is read-only"
    if reason is not None:
        raise ModelError(
            f"the step cannot work on the memory of {name!r}: it {reason}",
            hint="load_state_dict copies it; or bind a contiguous tensor of the graph's type",
        )


def _check_tied(parameters: Sequence[Parameter], given: Mapping[str, Array]) -> None:
    first: dict[tuple[str | None, tuple[Any, ...]], Parameter] = {}
    for parameter in parameters:
        other = first.setdefault((parameter.value, parameter.steps), parameter)
        if other is not parameter and not np.array_equal(
            given[other.name], given[parameter.name], equal_nan=True
        ):
            raise ModelError(f"{other.name!r} and {parameter.name!r} are one tied weight, but differ here")


def _same_memory(one: Array, other: Array) -> bool:
    return (
        one.__array_interface__["data"][0] == other.__array_interface__["data"][0]
        and one.strides == other.strides
    )


def _check_shape(parameters: ParameterMap, name: str, array: Array) -> None:
    expected = parameters[name].shape
    if tuple(array.shape) != expected:
        raise ModelError(
            f"parameter {name!r} has shape {tuple(array.shape)}, but the graph was made for {expected}",
            hint=did_you_mean(name, [p.name for p in parameters if p.shape == tuple(array.shape)]),
        )
