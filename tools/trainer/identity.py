"""Any value as JSON that is the same in every process and another for anything a trace could tell apart.

Functions and classes are known by what they do: their code, defaults, closures and the globals that they
read, as they are in memory now. What cannot be known that way is known in this process alone, so that no
graph made with it is ever served to another.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import itertools
import logging
import os
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["Reader", "codes", "file_hash", "is_known", "is_versioned", "plain"]

#: Their versions are part of every key, and so are fuseline's sources.
_KNOWN = ("builtins", "torch", "transformers", "peft", "accelerate", "numpy", "fuseline")

#: Where a config was read from, by which version, and what saving notes in it: none changes what it computes.
_IRRELEVANT = (
    "_name_or_path",
    "name_or_path",
    "transformers_version",
    "architectures",
    "dtype",
    "torch_dtype",
)

_BY_TEXT = (torch.dtype, torch.device, torch.Size, enum.Enum, complex, bytes, range, slice, os.PathLike)

_LONG = 10_000
"""What is longer than this, a table or a dataset, is not read for a key."""

_numbers = itertools.count()
_opaque: dict[int, tuple[Any, str]] = {}


def plain(value: Any) -> Any:
    """Tensors by the hash of their content, objects by class and attributes, functions by their code."""
    return Reader().plain(value)


@functools.cache
def _installed_under() -> tuple[str, ...]:
    return tuple({os.path.realpath(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")})


def is_versioned(module: str) -> bool:
    """Whether a module is of a package whose version every key names."""
    return module.split(".", 1)[0] in _KNOWN


def is_known(module: str | None) -> bool:
    """Whether a module is none of the user's own: versioned, installed, or part of Python."""
    if module is None or is_versioned(module):
        return True
    if module == "__main__":
        return False  # whatever was started, a notebook's kernel say, this is where users define things
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    if file is None:
        # Built into Python, or typed into a session.
        return found is not None and getattr(found, "__spec__", None) is not None
    return bool(os.path.realpath(file).startswith(_installed_under()))


class Reader:
    """One walk over a value; what was met before is named by its place.

    What is of the model that is described, its modules and parameters, is described with it.
    """

    def __init__(self, own: Iterable[Any] = ()) -> None:
        self._own = {id(part) for part in own}
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []

    def plain(self, value: Any) -> Any:
        if value is None or (isinstance(value, (bool, int, float, str)) and type(value) in _SCALARS):
            return value
        if isinstance(value, (Tensor, np.ndarray)):
            return [str(value.dtype), list(value.shape), hashlib.sha256(_bytes(value)).hexdigest()]
        if isinstance(value, _BY_TEXT):
            return [_name(type(value)), str(value)]
        if isinstance(value, logging.Logger):
            return "logger"
        if id(value) in self._seen:
            return f"as {self._seen[id(value)]}"
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return self._compound(value)

    def _compound(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            return self._of_module(value)
        if isinstance(value, type):
            return [_name(value), self.of_class(value)]
        if isinstance(value, functools.partial):
            return ["partial", *(self.plain(part) for part in (value.func, value.args, value.keywords))]
        if isinstance(value, types.MethodType):
            return ["method", self.plain(value.__self__), self.plain(value.__func__)]
        if isinstance(value, types.FunctionType):
            return [_name(value), None if is_known(value.__module__) else self._of_function(value)]
        if isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType, np.ufunc)):
            return getattr(value, "__qualname__", str(value))
        if isinstance(value, nn.Module):
            return [_name(type(value)), *self._of_stranger(value)]
        return [_name(type(value)), self.of_class(type(value)), self._parts(value)]

    def _of_stranger(self, module: nn.Module) -> list[Any]:
        """A module that is no part of the model, a teacher in a list say: its weights are baked in."""
        if id(module) in self._own:
            return ["described with the model"]
        held = {k: v for k, v in vars(module).items() if k not in _OF_TORCH}
        tensors = {
            k: "described with the model" if id(t) in self._own else self.plain(t)
            for k, t in (*module._parameters.items(), *module._buffers.items())
        }
        parts = [[k, self.plain(part)] for k, part in module._modules.items()]
        kinds = [self.of_class(kind) for kind in type(module).__mro__]
        return [kinds, module.training, [[k, self.plain(v)] for k, v in held.items()], tensors, parts]

    def _parts(self, value: Any) -> Any:
        if hasattr(value, "to_dict") and is_known(type(value).__module__):
            value = value.to_dict()
        if isinstance(value, Sized) and len(value) > _LONG:
            return _only_here(value)
        if isinstance(value, Mapping):
            return [[self.plain(k), self.plain(v)] for k, v in value.items() if k not in _IRRELEVANT]
        if isinstance(value, (set, frozenset)):
            return sorted(str(self.plain(v)) for v in value)
        if isinstance(value, (list, tuple)):
            return [self.plain(v) for v in value]
        held = {**_slots(value), **getattr(value, "__dict__", {})}
        if held or type(value).__dictoffset__ or hasattr(type(value), "__slots__"):
            return [[k, self.plain(v)] for k, v in held.items() if k not in _IRRELEVANT]
        return _only_here(value)

    def of_class(self, kind: type[Any]) -> Any:
        known = is_known(kind.__module__)
        held = []
        for name, value in vars(kind).items():
            function = _function_in(value)
            if known:
                # A method that somebody put into a class of a known package.
                if function is not None and not is_known(function.__module__):
                    held.append([name, self.plain(function)])
            elif function is not None:
                held.append([name, self.plain(function)])
            elif not name.startswith("__") and not isinstance(value, (types.GetSetDescriptorType, property)):
                held.append([name, self.plain(value)])
            elif isinstance(value, property):
                held.append([name, [self.plain(f) for f in (value.fget, value.fset)]])
        return held

    def _of_function(self, function: types.FunctionType) -> Any:
        cells = [_content(cell) for cell in function.__closure__ or ()]
        names = sorted(set(_global_names(function.__code__)))
        read = {n: function.__globals__[n] for n in names if n in function.__globals__}
        return [
            _code(function.__code__),
            self.plain(list(function.__defaults__ or ())),
            self.plain(function.__kwdefaults__ or {}),
            [self.plain(cell) for cell in cells],
            [[n, self.plain(v)] for n, v in read.items()],
        ]

    def _of_module(self, module: types.ModuleType) -> Any:
        """A module of the user's own is read through its attributes, so all of its plain values count."""
        if is_known(module.__name__):
            return module.__name__
        held = {n: v for n, v in vars(module).items() if not n.startswith("__")}
        return [module.__name__, [[n, self.plain(v)] for n, v in held.items()]]


_SCALARS = (bool, int, float, str)
#: What torch keeps in every module.
_OF_TORCH = frozenset(vars(nn.Module()))


def _function_in(value: Any) -> types.FunctionType | None:
    inner = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    inner = getattr(inner, "__wrapped__", inner) if not isinstance(inner, types.FunctionType) else inner
    return inner if isinstance(inner, types.FunctionType) else None


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of what is defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def _global_names(code: types.CodeType) -> Iterator[str]:
    for part in codes(code):
        for instruction in dis.get_instructions(part):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield instruction.argval


def _code(code: types.CodeType) -> str:
    """What the code does, wherever it stands: line numbers and file names are no part of it."""
    hashed = hashlib.sha256()
    for part in codes(code):
        constants = [c for c in part.co_consts if not isinstance(c, types.CodeType)]
        names = (part.co_names, part.co_varnames, part.co_freevars, part.co_cellvars, part.co_flags)
        hashed.update(part.co_code)
        hashed.update(repr([[type(c).__name__, _constant(c)] for c in constants]).encode())
        hashed.update(repr(names).encode())
    return hashed.hexdigest()


def _constant(value: Any) -> str:
    return str(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _slots(value: Any) -> dict[str, Any]:
    names = [n for kind in type(value).__mro__ for n in _listed(getattr(kind, "__slots__", ()))]
    return {n: getattr(value, n) for n in names if n not in ("__dict__", "__weakref__") and hasattr(value, n)}


def _listed(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _only_here(value: Any) -> str:
    """Something that cannot be looked into: the same object is the same, in this process."""
    known = _opaque.get(id(value))
    if known is None or known[0] is not value:
        _opaque[id(value)] = known = (value, f"process {os.getpid()}, object {next(_numbers)}")
    return known[1]


def _bytes(value: Any) -> bytes:
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    content: bytes = value.tobytes()
    return content


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def file_hash(path: Path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
