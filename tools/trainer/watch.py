"""Whether the live model is still the one that was compiled: asked before every run, so it must be cheap.

Every attribute of every module and of its class is compared by identity with what was there the last time,
and so is all that lists, dicts, sets and plain objects among them hold; of tensors that are no parameters and
of arrays, what was written into them. Anything else than the same objects is no proof of a change, only a
reason to look closely.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules import module as registry
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

__all__ = ["Slots", "Watch", "around", "attributes", "moving_buffers", "strangers_weights", "writable"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: Changed by every switch between training and evaluation, and by every run (the model's own `forward`).
_PASSING = ("training", "forward")
#: What torch keeps in every module, and what is looked at by itself.
_OF_TORCH = frozenset(vars(nn.Module()))
#: Things without settings of their own that a forward would read.
_LEAVES = (nn.Module, Tensor, type, types.ModuleType, types.FunctionType, types.MethodType)
#: Beyond so many, the containers are data and no settings; so is an array beyond so many bytes.
_CONTAINERS = 2000
_ARRAY = 1 << 16
#: How many values are looked at in search of modules behind the attributes.
_STEPS = 100_000

Container = list[Any] | dict[Any, Any] | set[Any] | deque[Any]


class Watch:
    """Remembers a model's modules and their attributes."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modules: list[nn.Module] = []
        self._kinds: list[type[nn.Module]] = []
        self._sensitive: list[tuple[str, nn.Module]] = []
        self._buffers: list[tuple[dict[str, Tensor | None], str]] = []
        self._containers: list[Container | Slots] = []
        self._tensors: list[Tensor] = []
        self._arrays: list[npt.NDArray[Any]] = []
        self._baked: list[Tensor] = []
        self._seen: list[Any] = []
        self._counts: list[int] = []
        #: Buffers that every step writes; they are fed and written back, and no sign of a change.
        self.moving: frozenset[str] = frozenset()
        self.remember()

    def remember(self) -> None:
        """The model as it is now is the one."""
        named = list(self._model.named_modules())
        self._modules = [module for _, module in named]
        self._kinds = list({kind: None for module in self._modules for kind in _own_kinds(type(module))})
        self._sensitive = [(name, module) for name, module in named if _depends_on_mode(module)]
        self._buffers = [
            (module._buffers, key)
            for prefix, module in named
            for key in module._buffers
            if f"{prefix}.{key}".lstrip(".") not in self.moving and not isinstance(module, _NormBase)
        ]
        found = list(writable(self._modules))
        self._tensors = [value for value in found if isinstance(value, Tensor)]
        self._arrays = [value for value in found if isinstance(value, np.ndarray)]
        self._containers = [value for value in found if not isinstance(value, (Tensor, np.ndarray))]
        self._baked = strangers_weights(self._model)
        self._seen, self._counts = self._look()

    def changed(self) -> bool:
        """Whether anything is not the very object that it was."""
        seen, counts = self._look()
        return len(seen) != len(self._seen) or not all(map(is_, seen, self._seen)) or counts != self._counts

    def odd_mode(self) -> str | None:
        """Why the model as a whole neither trains nor evaluates: a part of it was put into the other mode."""
        training = self._model.training
        for name, module in self._sensitive:
            if module.training != training:
                mine, its = ("trains", "evaluates") if training else ("evaluates", "trains")
                return f"the model {mine}, but its part {name!r} {its}"
        return None

    def _look(self) -> tuple[list[Any], list[int]]:
        # References are kept, not addresses: a new object could stand where an old one was.
        seen: list[Any] = [value for kind in self._kinds for value in vars(kind).values()]
        counts: list[int] = [tensor._version for tensor in self._tensors]
        counts += [hash(array.tobytes()) for array in self._arrays]
        # No version tells of what is written by `.data`, the way of most moving averages.
        counts += [hash(float(tensor.detach().sum(dtype=torch.float64)).hex()) for tensor in self._baked]
        for module in self._modules:
            held = vars(module)
            if next(iter(held)) == "training" and module is not self._model:
                seen += islice(
                    held.values(), 1, None
                )  # what torch sets first, and much quicker than a choice
            else:
                passing = _PASSING if module is self._model else _PASSING[:1]
                seen += [value for name, value in held.items() if name not in passing]
            seen += module._modules.values()
            seen += module._parameters.values()
            counts.append(sum(len(held[name]) for name in _HOOKS))
        for held_buffers, key in self._buffers:
            # Their contents are baked into the graph.
            buffer = held_buffers.get(key)
            seen.append(buffer)
            counts.append(-1 if buffer is None else buffer._version)
        for container in self._containers:
            seen += container.values() if isinstance(container, dict) else container
            counts.append(len(container))
        return seen, counts


def around() -> str | None:
    """Why torch would compute something else than the graph, for what was set up around the model."""
    if registry._has_any_global_hook():  # type: ignore[no-untyped-call]
        return "hooks on all modules are registered (torch.nn.modules.module.register_module_…)"
    return "it was called under torch.autocast" if torch.is_autocast_enabled("cpu") else None


def moving_buffers(model: nn.Module) -> set[str]:
    """The buffers that are looked at; those of norms are fed and written back by every step."""
    named = model.named_modules()
    return {
        f"{prefix}.{key}".lstrip(".")
        for prefix, m in named
        if not isinstance(m, _NormBase)
        for key in m._buffers
    }


def attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """What a module holds besides what torch keeps in every one."""
    passed = _OF_TORCH | set(_PASSING)
    return ((name, value) for name, value in vars(module).items() if name not in passed)


def writable(modules: Iterable[nn.Module]) -> Iterator[Container | Slots | Tensor | npt.NDArray[Any]]:
    """What can be written into behind the modules' attributes, those of plain objects included."""
    return islice(_inside([value for m in modules for _, value in attributes(m)]), _CONTAINERS)


def strangers_weights(model: nn.Module) -> list[Tensor]:
    """The weights of modules that are held by the model and no part of it: a graph has them baked in."""
    waiting = [value for module in model.modules() for _, value in attributes(module)]
    known = {id(part) for part in (*model.modules(), *model.parameters())}
    found: list[Tensor] = []
    while waiting and len(known) < _STEPS:
        value = waiting.pop()
        if id(value) in known:
            continue
        known.add(id(value))
        if isinstance(value, nn.Module):
            tensors = (*value._parameters.values(), *value._buffers.values())
            found += [t for t in tensors if t is not None and t.is_floating_point() and id(t) not in known]
            waiting += [*value._modules.values(), *(held for _, held in attributes(value))]
        elif isinstance(value, types.MethodType):
            waiting.append(value.__self__)
        elif isinstance(value, types.FunctionType):
            waiting += [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        elif isinstance(value, functools.partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, tuple | frozenset):
            waiting += value
        elif not isinstance(value, _LEAVES):
            for inside in _held(value):
                waiting += inside.values() if isinstance(inside, dict) else inside
    return found


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


class Slots:
    """What an object without a dict holds in its slots."""

    def __init__(self, holder: Any, names: list[str]) -> None:
        self._holder, self._names = holder, names

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self._holder, name) for name in self._names if hasattr(self._holder, name))

    def copy(self) -> dict[str, Any]:
        return {name: getattr(self._holder, name) for name in self._names if hasattr(self._holder, name)}

    def restore(self, before: dict[str, Any]) -> None:
        for name in self._names:
            if name in before:
                setattr(self._holder, name, before[name])
            elif hasattr(self._holder, name):
                delattr(self._holder, name)


def _inside(waiting: list[Any]) -> Iterator[Container | Slots | Tensor | npt.NDArray[Any]]:
    """All that can be written into behind some values."""
    known: set[int] = set()
    while waiting:
        value = waiting.pop()
        if id(value) in known:
            continue
        known.add(id(value))
        if _is_setting(value):
            yield value
        elif isinstance(value, tuple | frozenset):
            waiting += value
        elif not isinstance(value, _LEAVES):
            for held in _held(value):
                yield held
                waiting += held.values() if isinstance(held, dict) else held


def _is_setting(value: Any) -> bool:
    """Whether a value is numbers that a graph would hold as they are."""
    if isinstance(value, Tensor):
        return not isinstance(value, nn.Parameter) and not value.is_inference()
    return isinstance(value, np.ndarray) and value.nbytes <= _ARRAY and not value.dtype.hasobject


def _held(value: Any) -> Iterator[Container | Slots]:
    if isinstance(value, list | dict | set | deque):
        yield value
        return
    if isinstance(held := getattr(value, "__dict__", None), dict):
        yield held
    slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    if names := [name for given in slots for name in ((given,) if isinstance(given, str) else given)]:
        yield Slots(value, names)


def _own_kinds(kind: type[nn.Module]) -> Iterator[type[nn.Module]]:
    """A class and its bases, as far as they are not torch's."""
    return (base for base in kind.__mro__ if not base.__module__.startswith(("torch.", "builtins")))


def _depends_on_mode(module: nn.Module) -> bool:
    """Anything may, but for torch's own layers of which it is known; a module of the user's own may."""
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if isinstance(module, _NormBase):
        return module.track_running_stats
    return not type(module).__module__.startswith("torch.nn.modules.") or isinstance(
        module, (nn.RNNBase, nn.MultiheadAttention, nn.RReLU)
    )
