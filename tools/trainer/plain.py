"""Any value as JSON that is the same in every process: what a hash can be taken of."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["plain"]

#: Where a config was read from, and by which version: neither changes what it says.
_IRRELEVANT = ("_name_or_path", "transformers_version")


def plain(value: Any) -> Any:
    """Tensors by the hash of their content, objects by their attributes, functions by their name."""
    return _plain(value, set())


def _plain(value: Any, seen: set[int]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (Tensor, np.ndarray)):
        return [str(value.dtype), list(value.shape), hashlib.sha256(_bytes(value)).hexdigest()]
    if callable(value) and hasattr(value, "__qualname__"):
        return _name(value)
    if id(value) in seen:
        return "as above"
    seen.add(id(value))
    return [_name(type(value)), _parts(value, seen)]


def _parts(value: Any, seen: set[int]) -> Any:
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, Mapping):
        return [[str(k), _plain(v, seen)] for k, v in value.items() if k not in _IRRELEVANT]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, (list, tuple)):
        return [_plain(v, seen) for v in value]
    if isinstance(value, functools.partial):
        return [_plain(part, seen) for part in (value.func, value.args, value.keywords)]
    return _parts(getattr(value, "__dict__", {}), seen)


def _bytes(value: Any) -> bytes:
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    content: bytes = value.tobytes()
    return content


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
