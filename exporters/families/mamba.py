"""Mamba: its recurrence as a parallel scan, so that the length of the sequence stays free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuseline.exporters.families.base import Family
from fuseline.exporters.families.registry import register_family
from fuseline.exporters.swapping import swapped

__all__ = ["LONGEST", "Mamba", "scan"]

_DOUBLINGS = 12
#: The longest sequence that the exported scan covers.
LONGEST = 2**_DOUBLINGS


@register_family
class Mamba(Family):
    model_types = ("mamba",)

    def patches(self, model: nn.Module, *, train: bool) -> Iterator[AbstractContextManager[Any]]:
        from transformers.models.mamba import modeling_mamba

        yield swapped(modeling_mamba, "mamba_selective_scan", _selective_scan)


def _selective_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **_: Any,
) -> Any:
    """The mathematics of transformers' reference, its loop over tokens replaced by `scan`."""
    if delta_bias is not None:
        dt = dt + delta_bias.to(dt.dtype)[..., None]
    if delta_softplus:
        dt = F.softplus(dt)
    decay = torch.exp(A[None, :, None, :] * dt[:, :, :, None])
    added = dt[:, :, :, None] * B.transpose(1, 2)[:, None].float() * hidden_states[:, :, :, None].float()
    states = scan(decay, added)
    output = (states.to(hidden_states.dtype) * C.transpose(1, 2)[:, None]).sum(dim=-1)
    if D is not None:
        output = output + hidden_states * D[None, :, None]
    if z is not None:
        output = output * F.silu(z)
    return (output, states[:, :, -1]) if return_last_state else output


def scan(decay: Tensor, added: Tensor) -> Tensor:
    """x[t] = decay[t]·x[t-1] + added[t] along axis 2, by doubling the reach of every step."""
    length = decay.shape[2]
    added = added * _within_reach(length)
    for step in range(_DOUBLINGS):
        shift = 2**step
        pad = (0, 0, shift, 0)
        before = F.pad(added, pad)[:, :, :length]
        added = added + decay * before
        decay = decay * F.pad(decay, pad, value=1.0)[:, :, :length]
    return added


def _within_reach(length: int) -> Tensor:
    """1, looked up where a longer sequence has no entry: it fails there instead of losing its beginning."""
    return torch.ones(LONGEST).index_select(0, torch.full((1,), length - 1))
