"""Reading a call of the model: what is fed to the graph, and what the graph cannot take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fuseline.engine.facts import DeclaredInput

__all__ = ["Call", "Undecided", "Unsuited", "complete", "read_call"]

ITEMS = "num_items_in_batch"
#: Arguments that change nothing at these values.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "use_cache": (False,),
    "output_attentions": (False,),
    "output_hidden_states": (False,),
    "return_loss": (True,),
    "interpolate_pos_encoding": (False,),
}


class Unsuited(Exception):
    """This call is not for the graph; the text says why."""


class Undecided(Unsuited):
    """This call cannot tell how the graph has to be used; another one will."""


@dataclass
class Call:
    """The tensors of one call by name, and how its result is wanted."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    items: Tensor | int | None = None
    return_dict: bool = True


def read_call(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Sort the arguments by what they are."""
    call = Call()
    for name, value in _named(signature, args, kwargs).items():
        if name == ITEMS:
            call.items = value
        elif name == "return_dict":
            call.return_dict = value is not False
        elif isinstance(value, Tensor):
            call.tensors[name] = value
        elif value is not None and value not in _NEUTRAL.get(name, ()):
            raise Unsuited(f"the argument {name!r} is no input of the graph")
    return call


def _named(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    bound = signature.bind_partial(*args, **kwargs)
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            raise Unsuited("unnamed arguments cannot be matched to graph inputs")
        else:
            named[name] = value
    return named


def complete(tensors: Mapping[str, Tensor], inputs: Mapping[str, DeclaredInput]) -> dict[str, Tensor]:
    """The feeds, with their declared defaults for inputs that the caller left out."""
    unknown = [name for name in tensors if name not in inputs]
    if unknown:
        raise Unsuited(f"the argument {unknown[0]!r} is no input of the graph")
    sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        for axis, size in zip(inputs[name].axes, tensor.shape, strict=False):
            if isinstance(axis, str):
                sizes.setdefault(axis, size)
    return dict(tensors) | {
        name: _default(name, declared, sizes) for name, declared in inputs.items() if name not in tensors
    }


def _default(name: str, declared: DeclaredInput, sizes: Mapping[str, int]) -> Tensor:
    value, axes = declared.default, declared.axes
    if value is None or any(isinstance(a, str) and a not in sizes for a in axes):
        raise Unsuited(f"the input {name!r} was not given")
    return torch.full([sizes[a] if isinstance(a, str) else a for a in axes], value)
