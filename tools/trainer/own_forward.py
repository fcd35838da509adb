"""A model's own `forward`, while another one stands in its place."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fuseline.tools.trainer.effects import Buffers

__all__ = ["OwnForward", "own_forward"]


class OwnForward:
    """Remembers what the model had; called, it is torch's own computation."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._replaced = vars(model).get("forward")
        self._stand_in: Callable[..., Any] = model.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # The class may have been given another one.
        return (self._replaced or own_forward(self._model))(*args, **kwargs)

    def replace_by(self, stand_in: Callable[..., Any]) -> None:
        """Let the model call this from now on."""
        self._stand_in = stand_in
        self._model.forward = stand_in

    def restore(self) -> None:
        """Give the model its own `forward` back."""
        if self._replaced is None:
            del self._model.forward
        else:
            self._model.forward = self._replaced

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Inside, the model is the one that it was."""
        self.restore()
        try:
            yield
        finally:
            self._model.forward = self._stand_in

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """The model in evaluation mode, without gradients, under its own forward; then as it was."""
        modes = [(module, module.training) for module in self._model.modules()]
        buffers = Buffers(self._model)
        self._model.eval()
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=()), self.restored():
                yield
        finally:
            buffers.restore()
            for module, training in modes:
                module.training = training


def own_forward(model: nn.Module) -> Any:
    """The `forward` of the model's class: a copy of a model has weights of its own, and is a plain one."""
    return types.MethodType(type(model).forward, model)
