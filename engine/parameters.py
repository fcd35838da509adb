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

from fuseline.engine.errors import ModelError, did_you_mean
from fuseline.engine.parameter_steps import Slice, Step, concatenate

__all__ = ["Parameter", "ParameterMap"]


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

    @property
    def is_view(self) -> bool:
        """Whether `from_graph` gives a view, through which the graph's value can be written."""
        return all(step.is_view for step in self.steps)

    def from_graph(self, array: Any) -> Any:
        """The original parameter, given the graph value's content (numpy or torch)."""
        for step in reversed(self.steps):
            array = step.invert(array)
        return array

    def gradient_from_graph(self, array: Any) -> Any:
        """The parameter's gradient, given the gradient of its graph value."""
        for step in reversed(self.steps):
            array = step.gradient(array)
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

    def from_graph(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Original name → content, for every parameter whose graph value is given."""
        return {
            p.name: p.from_graph(values[p.value]) for p in self if p.value is not None and p.value in values
        }

    def to_graph(self, originals: Mapping[str, Any]) -> dict[str, Any]:
        """Graph value → content; a value is made only if all its parameters are given."""
        return {
            value: self.value_content(value, originals)
            for value, names in self._by_value.items()
            if all(name in originals for name in names)
        }

    def value_content(self, value: str, originals: Mapping[str, Any]) -> Any:
        """One graph value's content out of its parameters' (numpy arrays or torch tensors)."""
        return _assemble([(p.name, p.steps) for p in self.of_value(value)], originals)

    # -- text

    def copy(self) -> ParameterMap:
        return ParameterMap(self)

    def to_json(self) -> str:
        rows = []
        for p in self:
            row = {**asdict(p), "steps": [s.to_json() for s in p.steps]}
            rows.append(row)
        return json.dumps(rows, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ParameterMap:
        try:
            return cls(_parameter(row) for row in json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(
                f"the parameter map in the model's metadata cannot be read: {type(error).__name__}: {error}",
                hint="the file was changed after fuseline wrote it",
            ) from error


def _parameter(row: dict[str, Any]) -> Parameter:
    steps = tuple(Step.from_json(s) for s in row.pop("steps"))
    return Parameter(**{**row, "shape": tuple(row["shape"])}, steps=steps)


def _assemble(parts: list[tuple[str, tuple[Step, ...]]], originals: Mapping[str, Any]) -> Any:
    """The value that all these parameters live in: what was packed last is put together last."""
    for name, steps in parts:
        if not any(isinstance(s, Slice) for s in steps):
            return _through(steps, originals[name])
    packed: dict[Slice, list[tuple[str, tuple[Step, ...]]]] = {}
    later: set[tuple[Step, ...]] = set()
    for name, steps in parts:
        last = max(i for i, s in enumerate(steps) if isinstance(s, Slice))
        piece = steps[last]
        assert isinstance(piece, Slice)
        packed.setdefault(piece, []).append((name, steps[:last]))
        later.add(steps[last + 1 :])
    pieces = sorted(packed, key=lambda s: s.start)
    ends = [0, *(s.stop for s in pieces)]
    if len(later) != 1 or [s.start for s in pieces] != ends[:-1] or {ends[-1]} != {s.of for s in pieces}:
        names = ", ".join(name for name, _ in parts)
        raise ModelError(f"the parts {names} do not make up the one value that they are packed into")
    whole = concatenate([_assemble(packed[s], originals) for s in pieces], pieces[0].axis)
    return _through(later.pop(), whole)


def _through(steps: Iterable[Step], array: Any) -> Any:
    for step in steps:
        array = step.apply(array)
    return array
