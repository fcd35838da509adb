"""The loss of probabilities, which may be exactly 0 or 1: bounded like torch's, and so is its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from fuseline.exporters.swapping import swapped

__all__ = ["plain_binary_cross_entropy"]

#: Torch's bounds: of a logarithm, and of what the gradient divides by.
_LOWEST, _SMALLEST = -100.0, 1e-12


@contextmanager
def plain_binary_cross_entropy() -> Iterator[None]:
    """Binary cross entropy with torch's own gradient; its formula's is 0 · ∞ at a probability of 0 or 1."""
    with swapped(F, "binary_cross_entropy", _binary_cross_entropy):
        yield


def _binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    if size_average is not None or reduce is not None:
        reduction = torch.nn._reduction.legacy_get_string(size_average, reduce)
    if target.size() != input.size():
        raise ValueError(f"a target of size {target.size()} for an input of size {input.size()}")
    loss = _of_each(input, target)
    if weight is not None:
        loss = loss * weight
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.mean()


def _of_each(p: Tensor, target: Tensor) -> Tensor:
    """The value, which stops gradients, and two lines through it: 0, with the gradients as slopes."""
    with torch.no_grad():
        log_p, log_rest = torch.log(p).clamp(min=_LOWEST), torch.log(1 - p).clamp(min=_LOWEST)
        value = -(target * log_p + (1 - target) * log_rest)
        slope = (p - target) / (p * (1 - p)).clamp(min=_SMALLEST)
        slope_of_target = log_rest - log_p
    return value + (p - p.detach()) * slope + (target - target.detach()) * slope_of_target
