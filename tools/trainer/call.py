"""Reading a call of the model: what is fed to the graph, and what the graph cannot take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fuseline.engine.facts import DeclaredInput

__all__ = [
    "Call",
    "Different",
    "Generating",
    "Random",
    "Undecided",
    "Unsuited",
    "complete",
    "named_sizes",
    "read_call",
]

ITEMS = "num_items_in_batch"
#: What only generation passes: such calls are many, and no graph is made for them.
_GENERATING = ("past_key_values", "cache_params", "cache_position", "logits_to_keep", "encoder_outputs")
#: Switches of transformers: False is what they are, unless a default or the config says otherwise.
_SWITCHES = ("use_cache", "output_attentions", "output_hidden_states", "interpolate_pos_encoding")


class Unsuited(Exception):
    """This call is not for the graph; the text says why."""

    #: Whether the user is told even where the model does not train.
    aloud = True


class Generating(Unsuited):
    """One of the many calls of a generation: torch's, without a word."""

    aloud = False


class Random(Unsuited):
    """The model draws random numbers in evaluation, which no graph of ours does."""


class Different(Unsuited):
    """What the graph computes in evaluation is not what torch computes."""


class Undecided(Unsuited):
    """This call cannot tell how the graph has to be used; another one will."""


@dataclass
class Call:
    """The tensors of one call by name, and how its result is wanted."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    items: Tensor | int | None = None
    return_dict: bool = True
    #: What is no tensor, by name; a graph is made for each combination.
    arguments: tuple[tuple[str, Any], ...] = ()

    @property
    def kind(self) -> tuple[Any, ...]:
        """Calls of one kind differ in sizes and content alone."""
        tensors = tuple((n, t.dim(), t.is_floating_point()) for n, t in sorted(self.tensors.items()))
        return tensors, repr(self.arguments), self.return_dict  # 1, 1.0 and True are equal, and not the same

    def all_arguments(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """What torch is called with, for these tensors in place of the call's own."""
        plain = {} if self.return_dict else {"return_dict": False}
        return {**tensors, **dict(self.arguments), **plain}


def read_call(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], config: Any = None
) -> Call:
    """Sort the arguments by what they are; `config` is the model's."""
    call = Call()
    fixed: dict[str, Any] = {}
    for name, value in _named(signature, args, kwargs).items():
        if name == ITEMS:
            call.items = value
        elif name == "return_dict" and (value is False or _default_of(name, signature) is not False):
            call.return_dict = value is not False
        elif isinstance(value, Tensor) and name not in _GENERATING:
            call.tensors[name] = value
        elif _goes_without_saying(name, value, signature, config):
            continue
        elif name in _GENERATING or (name == "use_cache" and value is not False):
            raise Generating(f"the argument {name!r} is no input of the graph")
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            raise Unsuited(f"the argument {name!r} is no input of the graph")
        else:
            fixed[name] = value
    call.arguments = tuple(sorted(fixed.items()))
    return call


def _default_of(name: str, signature: inspect.Signature) -> Any:
    parameter = signature.parameters.get(name)
    return None if parameter is None or parameter.default is parameter.empty else parameter.default


def _goes_without_saying(name: str, value: Any, signature: inspect.Signature, config: Any) -> bool:
    """Whether the call is the same without this argument; where it is not, it is one like any other."""
    default = _default_of(name, signature)
    if value is None:
        return default is None and (name in signature.parameters or name in _GENERATING)
    if value is not False or name not in _SWITCHES:
        return False
    if default is None and name == "use_cache":  # a config's graph is made without a cache
        return config is not None
    return default is False or (default is None and getattr(config, name, None) is False)


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
    sizes = named_sizes(tensors, inputs)
    return dict(tensors) | {
        name: _default(name, declared, sizes) for name, declared in inputs.items() if name not in tensors
    }


def named_sizes(tensors: Mapping[str, Tensor], inputs: Mapping[str, DeclaredInput]) -> dict[str, int]:
    """The sizes of a batch by the names of its axes."""
    sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        for axis, size in zip(inputs[name].axes, tensor.shape, strict=False):
            if isinstance(axis, str):
                sizes.setdefault(axis, size)
    return sizes


def _default(name: str, declared: DeclaredInput, sizes: Mapping[str, int]) -> Tensor:
    value, axes = declared.default, declared.axes
    if value is None or any(isinstance(a, str) and a not in sizes for a in axes):
        raise Unsuited(f"the input {name!r} was not given")
    return torch.full([sizes[a] if isinstance(a, str) else a for a in axes], value)
