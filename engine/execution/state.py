"""Memory that a training step works on: parameters, buffers, moments and gradients, by graph value."""

from __future__ import annotations

from collections.abc import Mapping
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

    def add_zeros(self, value: ir.Value) -> None:
        """Fresh zeros of a value's type and shape."""
        assert value.name is not None
        assert value.dtype is not None
        assert value.shape is not None
        self.add(value.name, np.zeros(value.shape.numpy(), value.dtype.numpy()))

    def load(self, parameters: ParameterMap, originals: Mapping[str, Any]) -> list[str]:
        """Copy original parameters into their graph values; returns the names not found here."""
        given = {name: as_array(tensor) for name, tensor in originals.items()}
        unknown = [name for name in given if name not in parameters]
        for name in given:
            if name not in unknown:
                _check_shape(parameters, name, given[name])
        for parameter in parameters:
            if parameter.name in given and parameter.value in self.arrays:
                self._write(parameters, parameter, given)
        return unknown

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

        Cheap when nothing moved, so that it can be called before every step.
        """
        for name, tensor in tensors.items():
            parameter = parameters[name]
            if parameter.value is None or parameter.value not in self.arrays:
                continue
            theirs, ours = as_array(tensor), self.arrays[parameter.value]
            if parameter.is_view and _same_memory(theirs, parameter.from_graph(ours)):
                continue
            if not parameter.steps and theirs.flags.c_contiguous and theirs.dtype == ours.dtype:
                self.add(parameter.value, theirs)
            else:
                self._write(parameters, parameter, {n: as_array(t) for n, t in tensors.items()})


def as_array(tensor: Any) -> Array:
    """A numpy array over the same memory: of an array, or of a torch tensor on the CPU."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if hasattr(tensor, "detach"):
        array: Array = tensor.detach().numpy()
        return array
    return np.asarray(tensor)


def initial(model: Model, name: str) -> Array:
    """A private copy of an initializer."""
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return np.array(tensor.numpy(), order="C", copy=True)


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
