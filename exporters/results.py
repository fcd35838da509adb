"""What a model returned, as named tensors in their order: dicts, tuples and what is nested in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["flatten", "loss_in", "numbers_in"]

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def flatten(result: Any) -> dict[str, Tensor]:
    """Every tensor by name; what is none (a cache, None) has no place among the outputs of a graph."""
    return {"output": result} if isinstance(result, Tensor) else dict(_named(result, "", Tensor))


def numbers_in(result: Any) -> tuple[str, ...]:
    """The names of what is no tensor in a traced result, and yet depends on what is fed: sizes, mostly."""
    return tuple(name for name, _ in _named(result, "", _SYMBOLS))


def _named(result: Any, prefix: str, kinds: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(result, Mapping):
        pairs = [(f"{prefix}{key}", value) for key, value in result.items()]
    elif isinstance(result, (tuple, list)):
        pairs = [(f"{prefix}{i}" if prefix else f"output_{i}", value) for i, value in enumerate(result)]
    else:
        return
    for name, value in pairs:
        if isinstance(value, kinds):
            yield name, value
        else:
            yield from _named(value, f"{name}.", kinds)


def loss_in(result: Any) -> Tensor | None:
    """What a model returned as its loss: `loss`, or a first, single number."""
    found = result.get("loss") if isinstance(result, Mapping) else result
    found = found[0] if isinstance(found, (tuple, list)) and found else found
    if isinstance(found, Tensor) and found.is_floating_point() and found.numel() == 1:
        return found
    return None
