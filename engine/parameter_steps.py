"""The steps of the parameter map: what passes do to a weight, each with its way back.

A step is a frozen dataclass that serves numpy arrays and torch tensors alike: it speaks to either through
`operations_of`. A kind of step is known once its class exists; a file that names another is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from fuseline.engine.errors import ModelError, did_you_mean

__all__ = [
    "Cast",
    "Operations",
    "Reshape",
    "Slice",
    "Step",
    "Transpose",
    "check_inverse",
    "concatenate",
    "operations_of",
]


class Operations(Protocol):
    """What steps need of arrays beyond what numpy and torch call alike; arithmetic is the arrays' own."""

    def permute(self, array: Any, perm: tuple[int, ...]) -> Any: ...

    def cast(self, array: Any, dtype: str) -> Any: ...

    def concatenate(self, arrays: Sequence[Any], axis: int) -> Any: ...

    def constant(self, values: Any, like: Any) -> Any:
        """A Python or numpy value as an array of this kind, beside `like`."""
        ...


class Step:
    """One thing that was done to a parameter on its way into the graph.

    A subclass is a frozen dataclass with a `kind` of its own; its fields are JSON values and travel with the
    model. Defining it registers it.
    """

    kind: ClassVar[str]
    #: Whether `invert` gives a view: writing to the original then writes the graph's value.
    is_view: ClassVar[bool] = False
    _kinds: ClassVar[dict[str, type[Step]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        label = f"the step {cls.__module__}.{cls.__qualname__}"
        if not isinstance(getattr(cls, "kind", None), str):
            raise ModelError(f"{label} has no kind", hint='set the class attribute `kind`: kind = "negate"')
        if "step" in cls.__annotations__:
            raise ModelError(f"{label} has a field 'step', under which files keep its kind")
        unwritten = next((n for n in ("apply", "invert") if getattr(cls, n) is getattr(Step, n)), None)
        if unwritten is not None:
            raise ModelError(f"{label} has no method {unwritten!r}")
        known = Step._kinds.get(cls.kind)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ModelError(f"{label} is called {cls.kind!r}, as {known.__module__}.{known.__qualname__} is")
        Step._kinds[cls.kind] = cls

    @staticmethod
    def known() -> tuple[str, ...]:
        """The kinds that are defined."""
        return tuple(Step._kinds)

    def apply(self, array: Any) -> Any:
        """From the original towards the graph."""
        raise NotImplementedError

    def invert(self, array: Any) -> Any:
        """From the graph towards the original."""
        raise NotImplementedError

    def gradient(self, array: Any) -> Any:
        """A gradient of the graph's value, towards the original."""
        raise ModelError(f"a weight that went through {self.kind!r} has no gradient of its own")

    def to_json(self) -> dict[str, Any]:
        return {"step": self.kind, **asdict(self)}  # type: ignore[call-overload]

    @staticmethod
    def from_json(row: dict[str, Any]) -> Step:
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items() if k != "step"}
        found = Step._kinds.get(row["step"])
        if found is None:
            raise ModelError(
                f"the parameter map names a step {row['step']!r} that is not known here, so that the "
                "original weights cannot be restored",
                hint=did_you_mean(row["step"], Step._kinds)
                or "load the plugin, or use the version of fuseline, that wrote this model",
            )
        expected = {field.name for field in fields(found)}  # type: ignore[arg-type]
        if expected != set(values):
            raise ModelError(f"a step {row['step']!r} has {sorted(expected)}, not {sorted(values)}")
        return found(**values)


@dataclass(frozen=True)
class Transpose(Step):
    kind = "transpose"
    is_view = True
    perm: tuple[int, ...]

    def apply(self, array: Any) -> Any:
        return operations_of(array).permute(array, self.perm)

    def invert(self, array: Any) -> Any:
        back = tuple(self.perm.index(axis) for axis in range(len(self.perm)))
        return operations_of(array).permute(array, back)

    gradient = invert


@dataclass(frozen=True)
class Reshape(Step):
    kind = "reshape"
    is_view = True
    before: tuple[int, ...]
    after: tuple[int, ...]

    def apply(self, array: Any) -> Any:
        return array.reshape(self.after)

    def invert(self, array: Any) -> Any:
        return array.reshape(self.before)

    gradient = invert


@dataclass(frozen=True)
class Slice(Step):
    """The parameter is the part [start, stop) along `axis` of a larger value of length `of`."""

    kind = "slice"
    is_view = True
    axis: int
    start: int
    stop: int
    of: int

    def apply(self, array: Any) -> Any:
        raise ModelError("one part cannot make the packed value alone; use ParameterMap.to_graph")

    def invert(self, array: Any) -> Any:
        return array[(slice(None),) * self.axis + (slice(self.start, self.stop),)]

    gradient = invert


@dataclass(frozen=True)
class Cast(Step):
    kind = "cast"
    before: str
    after: str

    def apply(self, array: Any) -> Any:
        return operations_of(array).cast(array, self.after)

    def invert(self, array: Any) -> Any:
        return operations_of(array).cast(array, self.before)

    gradient = invert


def check_inverse(step: Step, content: Any, made: Any) -> None:
    """Refuse a step that does not lead back: the trained weights would be saved as something else.

    It may lose digits, as a cast does; what went there and back once goes there unchanged.
    """
    label = f"the step {step.kind!r} on an array of {content.dtype}{list(content.shape)}"
    if not is_dataclass(step) or not type(step).__dataclass_params__.frozen:
        raise ModelError(f"{label} is no frozen dataclass, so that no file can keep it")
    back = step.invert(made)
    if (back.shape, back.dtype) != (content.shape, content.dtype):
        raise ModelError(f"{label} leads back to one of {back.dtype}{list(back.shape)}")
    again = step.apply(back)
    wide = again.astype(np.float64), made.astype(np.float64)
    if not np.allclose(*wide, rtol=1e-3, atol=1e-3 * float(np.abs(wide[1]).max(initial=0)), equal_nan=True):
        raise ModelError(f"{label} does not lead back: `invert` must undo `apply`")


def concatenate(arrays: Sequence[Any], axis: int) -> Any:
    return operations_of(arrays[0]).concatenate(arrays, axis)


class _Numpy:
    def permute(self, array: Any, perm: tuple[int, ...]) -> Any:
        return array.transpose(perm)

    def cast(self, array: Any, dtype: str) -> Any:
        return array.astype(_numpy_type(dtype))

    def concatenate(self, arrays: Sequence[Any], axis: int) -> Any:
        return np.concatenate(arrays, axis=axis)

    def constant(self, values: Any, like: Any) -> Any:
        return np.asarray(values)


class _Torch:
    def permute(self, array: Any, perm: tuple[int, ...]) -> Any:
        return array.permute(perm)

    def cast(self, array: Any, dtype: str) -> Any:
        import torch

        return array.to(getattr(torch, dtype))

    def concatenate(self, arrays: Sequence[Any], axis: int) -> Any:
        import torch

        return torch.cat(list(arrays), dim=axis)

    def constant(self, values: Any, like: Any) -> Any:
        import torch

        return torch.as_tensor(np.asarray(values), device=like.device)


def operations_of(array: Any) -> Operations:
    """The operations of the array's own library."""
    if isinstance(array, np.ndarray):
        return _NUMPY
    if type(array).__module__.split(".", 1)[0] == "torch" or hasattr(array, "requires_grad"):
        return _TORCH
    raise ModelError(f"a parameter is a numpy array or a torch tensor, not {type(array).__name__}")


def _numpy_type(dtype: str) -> Any:
    if dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"):
        import ml_dtypes

        return getattr(ml_dtypes, dtype)
    return np.dtype(dtype)


_NUMPY = _Numpy()
_TORCH = _Torch()
