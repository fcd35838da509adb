"""What a forward does besides computing: settings that it changes, numbers of the host that it draws.

No graph does any of it. A model whose forward does is torch's, and what was found by trying is undone.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from torch import Tensor, nn

from fuseline.engine.errors import FuselineError
from fuseline.tools.trainer.watch import attributes, containers

__all__ = ["Effects"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_HELD = (*_PLAIN, Tensor)
_ABSENT = object()


class Effects:
    """A model's settings and the host's random numbers as they were when this was made."""

    def __init__(self, model: nn.Module) -> None:
        named = list(model.named_modules())
        self._attributes = [(name, module, dict(attributes(module))) for name, module in named]
        self._containers = [(held, held.copy()) for held in containers(module for _, module in named)]
        self._buffers = [
            (module._buffers, key, buffer, buffer.clone(), buffer._version)
            for _, module in named
            for key, buffer in module._buffers.items()
            if buffer is not None
        ]
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
                return f"its forward changes a {type(held).__name__} that it holds"
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
            if isinstance(held, list):
                held[:] = copied
            elif held != copied:
                held.clear()
                held.update(copied)
        for buffers, key, buffer, content, version in self._buffers:
            buffers[key] = buffer
            if buffer._version != version:
                buffer.data.copy_(content)


def _same_numbers(a: Any, b: Any) -> bool:
    first, second = a["state"], b["state"]
    return bool(first["pos"] == second["pos"] and np.array_equal(first["key"], second["key"]))


def _members(held: list[Any] | dict[Any, Any]) -> list[Any]:
    return list(held.values()) if isinstance(held, dict) else held


def _differ(a: Any, b: Any) -> bool:
    """Whether these are two settings, or two tensors; objects are known by what they hold."""
    if a is b or not (isinstance(a, _HELD) or isinstance(b, _HELD)):
        return False
    return type(a) is not type(b) or isinstance(a, Tensor) or bool(a != b)
