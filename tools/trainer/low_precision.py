"""Weights in bfloat16 or float16: the graph computes in float32, and all that torch sees stays as it is.

ONNX Runtime has no arithmetic in these types on a processor. Torch rounds after every operator; the graph
rounds only the weights and, when they are handed to torch, the gradients and the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["in_float32", "in_float64", "low_precision", "raised"]

_LOW = (torch.bfloat16, torch.float16)


def low_precision(model: nn.Module) -> str | None:
    """The type of the model's weights, if it is one that the graph does not compute in."""
    low = {p.dtype for p in model.parameters() if p.dtype in _LOW}
    return " and ".join(sorted(str(t).removeprefix("torch.") for t in low)) or None


@contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Inside, weights and buffers hold the same numbers in float32; afterwards, what they held before."""
    with _converted(model, _LOW, torch.float32):
        yield


@contextmanager
def in_float64(model: nn.Module) -> Iterator[None]:
    """The same in float64, for what is in float32."""
    with _converted(model, (torch.float32,), torch.float64):
        yield


@contextmanager
def _converted(model: nn.Module, kinds: tuple[torch.dtype, ...], to: torch.dtype) -> Iterator[None]:
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers()) if t.dtype in kinds}
    before = [(t, t.data) for t in tensors.values()]
    try:
        for tensor, data in before:
            tensor.data = data.to(to)
        yield
    finally:
        for tensor, data in before:
            tensor.data = data


def raised(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same numbers, none of them in less than float32."""
    return {name: t.float() if t.dtype in _LOW else t for name, t in tensors.items()}
