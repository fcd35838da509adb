"""The structure of what a model returns, to be filled with what the graph computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from fuseline.exporters.results import loss_in

__all__ = ["Template"]


class _Missing:
    """Stands for a result that the graph does not give: a cache, or what nobody asked for."""


class Template:
    """Made of one result; remembers types and names, and no tensor."""

    def __init__(self, result: Any) -> None:
        loss = loss_in(result)
        self.has_loss = loss is not None
        self._loss = _Place(loss) if loss is not None else None
        #: The places of all tensors but the loss, in the order of the graph's outputs.
        self.others: list[_Place] = []
        #: The type of a result that no graph gives: a weight, or neither tensor nor plain nor a cache.
        self.lacks: str | None = None
        self._root = self._read(result, loss)

    def _read(self, part: Any, loss: Tensor | None) -> Any:
        if isinstance(part, nn.Parameter):
            # What is computed from it outside has a gradient that no output of a graph would pass on.
            self.lacks = type(part).__name__
        if isinstance(part, Tensor):
            if part is loss and self._loss is not None and not self._loss.read:
                self._loss.read = True
                return self._loss
            self.others.append(_Place(part))
            return self.others[-1]
        if isinstance(part, Mapping):
            return type(part), {key: self._read(value, loss) for key, value in part.items()}
        if isinstance(part, (tuple, list)):
            return type(part), [self._read(value, loss) for value in part]
        if part is None or isinstance(part, (bool, int, float, str)):
            return part
        if not isinstance(part, Cache):
            self.lacks = type(part).__name__
        return _Missing

    def fill(self, loss: Tensor | None, others: Sequence[Tensor] | None) -> Any:
        """The result with these tensors; without `others`, only the loss is in it."""
        values = iter(others) if others is not None else None
        return self._made(self._root, loss, values)

    def _made(self, part: Any, loss: Tensor | None, values: Iterator[Tensor] | None) -> Any:
        if isinstance(part, _Place):
            given = loss if part is self._loss else next(values) if values is not None else None
            return _Missing if given is None else part.fitted(given)
        if not isinstance(part, tuple):
            return part
        kind, held = part
        if isinstance(held, dict):
            made = {key: self._made(value, loss, values) for key, value in held.items()}
            return kind(**{key: value for key, value in made.items() if value is not _Missing})
        items = [self._made(p, loss, values) for p in held]
        if hasattr(kind, "_fields"):
            return kind(*(None if item is _Missing else item for item in items))
        return kind(item for item in items if item is not _Missing)


class _Place:
    """Where a tensor belongs, and how torch gives it."""

    def __init__(self, tensor: Tensor) -> None:
        self.dtype: torch.dtype = tensor.dtype
        self.is_row = tensor.dim() == 1 and tensor.numel() == 1
        self.read = False

    def fitted(self, tensor: Tensor) -> Tensor:
        tensor = tensor if tensor.dtype == self.dtype else tensor.to(self.dtype)
        return tensor.reshape(1) if self.is_row and tensor.dim() == 0 else tensor
