"""What a forward does besides computing: settings that it changes, numbers of the host that it draws.

No graph does any of it. A model whose forward does is torch's, and what was found by trying is undone.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fuseline.engine.errors import FuselineError
from fuseline.tools.trainer.watch import Slots, attributes, writable

__all__ = ["Buffers", "Effects", "no_writing_of_weights"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_HELD = (*_PLAIN, Tensor)
_ABSENT = object()
_NUMBERS = (Tensor, np.ndarray)


class Buffers:
    """A model's buffers as they were when this was made."""

    def __init__(self, model: nn.Module) -> None:
        self._held = [
            (name, module._buffers, key, buffer, buffer.clone())
            for name, module in model.named_modules()
            for key, buffer in module._buffers.items()
            if buffer is not None
        ]

    def written(self) -> str | None:
        """The name of one that holds something else by now."""
        for name, buffers, key, buffer, content in self._held:
            if buffers.get(key) is not buffer or not _same_content(buffer, content):
                return f"{name}.{key}".lstrip(".")
        return None

    def restore(self) -> None:
        for _, buffers, key, buffer, content in self._held:
            buffers[key] = buffer
            if not _same_content(buffer, content):
                buffer.data.copy_(content)


class Effects:
    """A model's settings and the host's random numbers as they were when this was made."""

    def __init__(self, model: nn.Module) -> None:
        named = list(model.named_modules())
        self._attributes = [(name, module, dict(attributes(module))) for name, module in named]
        found = list(writable(module for _, module in named))
        self._containers = [(held, held.copy()) for held in found if not isinstance(held, _NUMBERS)]
        self._numbers = [(held, _copied(held)) for held in found if isinstance(held, _NUMBERS)]
        self.buffers = Buffers(model)
        self._python, self._numpy = random.getstate(), np.random.get_state(legacy=False)

    def found(self) -> str | None:
        """What was changed since, of all that a graph would leave alone."""
        if random.getstate() != self._python:
            return "its forward draws numbers by Python's module 'random'"
        if not _same_numbers(np.random.get_state(legacy=False), self._numpy):
            return "its forward draws numbers by numpy.random"
        for name, module, before in self._attributes:
            now = dict(attributes(module))
            for key in before.keys() | now.keys():
                if _differ(before.get(key, _ABSENT), now.get(key, _ABSENT)):
                    return f"its forward changes the attribute {f'{name}.{key}'.lstrip('.')!r}"
        for held, copied in self._containers:
            if len(held) != len(copied) or any(map(_differ, _members(held), _members(copied))):
                kind = "slot of an object" if isinstance(held, Slots) else type(held).__name__
                return f"its forward changes a {kind} that it holds"
        for numbers, content in self._numbers:
            if not _same_content(torch.as_tensor(numbers), torch.as_tensor(content)):
                return f"its forward writes into a {type(numbers).__name__} that it holds"
        return None

    def refuse(self, cause: Exception | None = None) -> None:
        """Undo what was changed; anything that a graph would leave alone is an error."""
        effect = self.found()
        self.undo()
        if effect is not None:
            raise FuselineError(effect, hint="a graph computes, and changes nothing besides") from cause

    def undo(self) -> None:
        """Everything is as it was."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        for _, module, before in self._attributes:
            for key in dict(attributes(module)).keys() - before.keys():
                del vars(module)[key]
            vars(module).update(before)
        for held, copied in self._containers:
            _refill(held, copied)
        for numbers, content in self._numbers:
            if not _same_content(torch.as_tensor(numbers), torch.as_tensor(content)):
                torch.as_tensor(numbers).data.copy_(torch.as_tensor(content))
        self.buffers.restore()


class _Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what would write into the memory of a weight."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._named = {
            p.untyped_storage().data_ptr(): name
            for name, p in model.named_parameters()
            if p.numel() and p.layout is torch.strided
        }

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        declared = func._schema.arguments
        given = [
            *zip(declared, args, strict=False),
            *((a, kwargs[a.name]) for a in declared if a.name in kwargs),
        ]
        for argument, value in given:
            if argument.is_write and isinstance(value, Tensor) and value.layout is torch.strided:
                name = self._named.get(value.untyped_storage().data_ptr())
                if name is not None:
                    raise FuselineError(
                        f"its forward writes into the weight {name!r}",
                        hint="a graph computes, and changes nothing besides",
                    )
        return func(*args, **kwargs)


def no_writing_of_weights(model: nn.Module) -> TorchDispatchMode:
    """Inside, a forward that writes into a weight is an error before it does."""
    return _Guard(model)


def _same_content(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _same_numbers(a: Any, b: Any) -> bool:
    first, second = a["state"], b["state"]
    return bool(first["pos"] == second["pos"] and np.array_equal(first["key"], second["key"]))


def _members(held: Any) -> list[Any]:
    return list(held.values() if isinstance(held, dict) else held)


def _copied(numbers: Any) -> Any:
    return numbers.detach().clone() if isinstance(numbers, Tensor) else numbers.copy()


def _refill(held: Any, copied: Any) -> None:
    if isinstance(held, list):
        held[:] = copied
    elif isinstance(held, Slots):
        held.restore(copied)
    elif held != copied:
        held.clear()
        held.extend(copied) if isinstance(held, deque) else held.update(copied)


def _differ(a: Any, b: Any) -> bool:
    """Whether these are two settings, or two tensors; objects are known by what they hold."""
    if a is b or not (isinstance(a, _HELD) or isinstance(b, _HELD)):
        return False
    return type(a) is not type(b) or isinstance(a, Tensor) or bool(a != b)
