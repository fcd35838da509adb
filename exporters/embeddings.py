"""Embeddings whose gradient is not simply that of a look-up, written so that the graph's is the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuseline.exporters.errors import ExportError
from fuseline.exporters.swapping import swapped

__all__ = ["plain_embedding", "plain_embedding_bag"]


@contextmanager
def plain_embedding() -> Iterator[None]:
    """`F.embedding` with gradients scaled by frequency, and with a padding row that no module declares.

    The padding row of an `nn.Embedding` is written down with the parameter instead, where fusions find it.
    """
    original = F.embedding

    def embedding(
        ids: Tensor,
        weight: Tensor,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Any:
        if max_norm is not None:
            raise ExportError(
                "an embedding with max_norm rewrites its table in every forward, which a graph cannot do",
                hint="normalise the rows that were looked up instead",
            )
        rows: Tensor = original(ids, weight, padding_idx)
        share: Tensor | None = None
        if scale_grad_by_freq:
            share = 1 / _counts(ids, weight.shape[0]).to(rows.dtype)
        if padding_idx is not None and sys._getframe(1).f_code is not nn.Embedding.forward.__code__:
            kept = (ids != padding_idx % weight.shape[0]).to(rows.dtype)
            share = kept if share is None else share * kept
        fixed = rows.detach()
        return rows if share is None else fixed + (rows - fixed) * share[..., None]

    with swapped(F, "embedding", embedding):
        yield


@contextmanager
def plain_embedding_bag() -> Iterator[None]:
    """`F.embedding_bag` over bags of one size, as a look-up and a sum, mean or maximum."""

    def embedding_bag(
        ids: Tensor,
        weight: Tensor,
        offsets: Tensor | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        per_sample_weights: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Any:
        if ids.dim() != 2 or offsets is not None or padding_idx is not None or max_norm is not None:
            raise ExportError(
                "an embedding bag with offsets, a padding row or max_norm has no gradient in a graph",
                hint="give ids as [batch, bag size]; weight what does not count with 0",
            )
        rows: Tensor = F.embedding(ids, weight, scale_grad_by_freq=scale_grad_by_freq)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights[..., None]
        if mode == "max":
            return rows.max(dim=1).values
        return rows.sum(dim=1) if mode == "sum" else rows.mean(dim=1)

    with swapped(F, "embedding_bag", embedding_bag):
        yield


def _counts(ids: Tensor, rows: int) -> Tensor:
    """How often each id is looked up in this call."""
    flat = ids.reshape(-1)
    totals = torch.zeros(rows, dtype=torch.int64, device=ids.device)
    return totals.scatter_add(0, flat, torch.ones_like(flat)).gather(0, flat).reshape(ids.shape)
