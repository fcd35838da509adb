"""The parameter map: from a model's original parameter names to the values of its graph, and back.

A pass may transpose a weight, reshape it, cast it, or pack three weights into one. Each of these is recorded
as an invertible step, so that whatever became of a weight in the graph, the trained model is saved under the
names and shapes it came with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fuseline.engine.errors import ModelError, did_you_mean

__all__ = ["Cast", "Parameter", "ParameterMap", "Reshape", "Slice", "Step", "Transpose"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Transpose:
    perm: tuple[int, ...]

    def apply(self, array: Array) -> Array:
        return array.transpose(self.perm)

    def invert(self, array: Array) -> Array:
        return array.transpose(np.argsort(self.perm))


@dataclass(frozen=True)
class Reshape:
    before: tuple[int, ...]
    after: tuple[int, ...]

    def apply(self, array: Array) -> Array:
        return array.reshape(self.after)

    def invert(self, array: Array) -> Array:
        return array.reshape(self.before)


@dataclass(frozen=True)
class Slice:
    """The parameter is the part [start, stop) along `axis` of a larger value of length `of`."""

    axis: int
    start: int
    stop: int
    of: int

    def apply(self, array: Array) -> Array:
        raise ModelError("one part cannot make the packed value alone; use ParameterMap.to_graph")

    def invert(self, array: Array) -> Array:
        index = [slice(None)] * array.ndim
        index[self.axis] = slice(self.start, self.stop)
        return array[tuple(index)]


@dataclass(frozen=True)
class Cast:
    before: str
    after: str

    def apply(self, array: Array) -> Array:
        return array.astype(self.after)

    def invert(self, array: Array) -> Array:
        return array.astype(self.before)


Step = Transpose | Reshape | Slice | Cast
_STEPS: dict[str, type[Any]] = {c.__name__.lower(): c for c in (Transpose, Reshape, Slice, Cast)}


@dataclass(frozen=True)
class Parameter:
    """One original parameter or buffer. `value` names the graph value; None once it is unused."""

    name: str
    value: str | None
    shape: tuple[int, ...]
    dtype: str = "float32"
    trainable: bool = True
    kind: Literal["parameter", "buffer"] = "parameter"
    steps: tuple[Step, ...] = ()

    def from_graph(self, array: Array) -> Array:
        """The original parameter, given the graph value's content."""
        for step in reversed(self.steps):
            array = step.invert(array)
        return array


class ParameterMap:
    """Original names to graph values through invertible steps; several names on one value are tied."""

    def __init__(self, parameters: Iterable[Parameter] = ()) -> None:
        self._by_name: dict[str, Parameter] = {}
        self._by_value: dict[str, list[str]] = {}
        for parameter in parameters:
            self.add(parameter)

    # -- reading

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Parameter:
        if name not in self._by_name:
            raise ModelError(f"no parameter named {name!r}", hint=did_you_mean(name, self._by_name))
        return self._by_name[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParameterMap) and self._by_name == other._by_name

    def of_value(self, value: str | None) -> list[Parameter]:
        """All original parameters that live in this graph value."""
        return [self._by_name[n] for n in self._by_value.get(value or "", ())]

    def holds(self, value: str | None) -> bool:
        """Whether this graph value carries an original parameter or buffer."""
        return bool(value) and value in self._by_value

    def is_trainable(self, value: str | None) -> bool:
        return any(p.trainable for p in self.of_value(value))

    def trainable_values(self) -> list[str]:
        """Graph values that receive a gradient, in the order of their first parameter."""
        return [v for v in self._by_value if self.is_trainable(v)]

    # -- declaring

    def add(self, parameter: Parameter) -> None:
        if parameter.name in self._by_name:
            raise ModelError(f"parameter {parameter.name!r} is in the map already")
        self._by_name[parameter.name] = parameter
        if parameter.value is not None:
            self._by_value.setdefault(parameter.value, []).append(parameter.name)

    def set_trainable(self, names: Iterable[str], trainable: bool) -> None:
        for name in names:
            self._by_name[name] = replace(self[name], trainable=trainable)

    # -- what passes do to a value

    def rename(self, old: str, new: str) -> None:
        """The value `old` is now called `new`; if `new` carries parameters too, they become tied."""
        names = self._by_value.pop(old, [])
        for name in names:
            self._by_name[name] = replace(self._by_name[name], value=new)
        if names:
            self._by_value.setdefault(new, []).extend(names)

    def transform(self, value: str, step: Step) -> None:
        """The value's content went through `step`."""
        for name in self._by_value.get(value, ()):
            parameter = self._by_name[name]
            self._by_name[name] = replace(parameter, steps=(*parameter.steps, step))

    def pack(self, values: Mapping[str, int], axis: int, into: str) -> None:
        """The values (name → length along `axis`, in order) were concatenated into one."""
        total, start = sum(values.values()), 0
        for value, length in values.items():
            self.transform(value, Slice(axis, start, start + length, total))
            self.rename(value, into)
            start += length

    def lose(self, value: str) -> None:
        """The graph no longer needs this value; its parameters keep their place in the map."""
        for name in self._by_value.pop(value, ()):
            self._by_name[name] = replace(self._by_name[name], value=None)

    # -- content

    def from_graph(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Original name → content, for every parameter whose graph value is given."""
        return {
            p.name: p.from_graph(values[p.value]) for p in self if p.value is not None and p.value in values
        }

    def to_graph(self, originals: Mapping[str, Array]) -> dict[str, Array]:
        """Graph value → content; a value is made only if all its parameters are given."""
        made: dict[str, Array] = {}
        for value, names in self._by_value.items():
            parts = [self._by_name[n] for n in names]
            if all(p.name in originals for p in parts):
                made[value] = _assemble(parts, originals)
        return made

    # -- text

    def copy(self) -> ParameterMap:
        return ParameterMap(self)

    def to_json(self) -> str:
        rows = []
        for p in self:
            row = {**asdict(p), "steps": [{"step": type(s).__name__.lower(), **asdict(s)} for s in p.steps]}
            rows.append(row)
        return json.dumps(rows, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ParameterMap:
        return cls(_parameter(row) for row in json.loads(text))


def _parameter(row: dict[str, Any]) -> Parameter:
    steps = tuple(_step(dict(s)) for s in row.pop("steps"))
    return Parameter(**{**row, "shape": tuple(row["shape"])}, steps=steps)


def _step(row: dict[str, Any]) -> Step:
    kind = _STEPS[row.pop("step")]
    step: Step = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})
    return step


def _assemble(parts: list[Parameter], originals: Mapping[str, Array]) -> Array:
    first = parts[0]
    if not any(isinstance(s, Slice) for s in first.steps):
        array = originals[first.name]
        for step in first.steps:
            array = step.apply(array)
        return np.ascontiguousarray(array)
    shape, dtype = _packed_shape(first, originals[first.name])
    packed = np.empty(shape, dtype)
    positions = np.arange(packed.size).reshape(shape)
    for part in parts:
        # Casts do not move elements, so positions go through the others alone.
        where = replace(part, steps=tuple(s for s in part.steps if not isinstance(s, Cast))).from_graph(
            positions
        )
        packed.reshape(-1)[where.reshape(-1)] = originals[part.name].reshape(-1).astype(dtype)
    return packed


def _packed_shape(part: Parameter, array: Array) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape, dtype = list(array.shape), array.dtype
    for step in part.steps:
        match step:
            case Slice(axis=axis, of=of):
                shape[axis] = of
            case Transpose(perm=perm):
                shape = [shape[i] for i in perm]
            case Reshape(after=after):
                shape = list(after)
            case Cast(after=after_dtype):
                dtype = np.dtype(after_dtype)
    return tuple(shape), dtype
