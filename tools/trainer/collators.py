"""Collators for texts of unequal length: several in one row, or padded to few sizes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.engine.errors import FuselineError

__all__ = ["BucketingCollator", "PackingCollator"]

_IGNORED = -100
_TRIED = (5, 8)
"""Lengths of the documents that a model is tried with."""
_TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9}
"""What of the largest score is rounding; models whose weights were never trained mix little."""


class PackingCollator:
    """Puts whole documents side by side into rows of at most `max_length` tokens, for causal language models.

    Attention stays within each document, positions restart with each, and no document predicts the first
    token of the next: loss and gradients are those of the documents one by one. Longer documents go first,
    each into the first row with room for it. The model is tried when the collator is made: where it would
    mix documents, that is an error.

        collator = PackingCollator(model, max_length=512)
        Trainer(model, args, train_dataset=documents, data_collator=collator)

    A document is `input_ids` and, where not every token is to be learned, `labels`; tokens that its
    `attention_mask` hides are left out. `per_device_train_batch_size` counts documents.
    """

    def __init__(self, model: nn.Module, max_length: int, *, pad_token_id: int | None = None) -> None:
        self.max_length = max_length
        self._pad = _pad_token(model) if pad_token_id is None else pad_token_id
        #: Whether a batch has a mask; otherwise the model finds the documents by their positions.
        self.masked = _needs_mask(model)

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        documents = [_document(feature, i) for i, feature in enumerate(features)]
        rows = self._rows([len(tokens) for tokens, _ in documents])
        length = max(sum(len(documents[i][0]) for i in row) for row in rows)
        ids = torch.full((len(rows), length), self._pad)
        labels = torch.full_like(ids, _IGNORED)
        positions = torch.zeros_like(ids)
        owners = torch.full_like(ids, -1)
        for number, row in enumerate(rows):
            start = 0
            for i in row:
                tokens, wanted = documents[i]
                place = number, slice(start, start + len(tokens))
                ids[place], labels[place], owners[place] = tokens, wanted, i
                positions[place] = torch.arange(len(tokens))
                labels[number, start] = _IGNORED  # what stands in front of it is another document
                start += len(tokens)
        made = {"input_ids": ids, "position_ids": positions, "labels": labels}
        return made | ({"attention_mask": block_diagonal(owners)} if self.masked else {})

    def _rows(self, lengths: Sequence[int]) -> list[list[int]]:
        """Which documents share a row: the longest first, each where there is room first."""
        rows: list[list[int]] = []
        room: list[int] = []
        for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            if lengths[i] > self.max_length:
                raise FuselineError(
                    f"document {i} of the batch has {lengths[i]} tokens, a row {self.max_length}",
                    hint="split or truncate documents when they are tokenized, or make the rows longer",
                )
            row = next((r for r, left in enumerate(room) if left >= lengths[i]), len(rows))
            if row == len(rows):
                rows.append([])
                room.append(self.max_length)
            rows[row].append(i)
            room[row] -= lengths[i]
        return rows


class BucketingCollator:
    """Lets another collator pad to the smallest of a few lengths that holds the batch, so that shapes repeat.

        BucketingCollator(DataCollatorWithPadding(tokenizer), buckets=(32, 64, 128))

    Batches of like texts, with which this pads least, are the stock argument
    `train_sampling_strategy="group_by_length"`. What is longer than every bucket is padded to a multiple of
    the longest.
    """

    def __init__(self, collator: Any, buckets: Sequence[int]) -> None:
        if not buckets or min(buckets) < 1:
            raise FuselineError(f"buckets are lengths from 1 on, not {list(buckets)}")
        if not hasattr(collator, "pad_to_multiple_of"):
            raise FuselineError(
                f"{type(collator).__name__} has no pad_to_multiple_of",
                hint="take a padding collator of transformers, such as DataCollatorWithPadding",
            )
        self.buckets = sorted(buckets)
        self._collators = {size: copy.copy(collator) for size in self.buckets}
        for size, made in self._collators.items():
            made.pad_to_multiple_of = size

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> Any:
        longest = max(len(feature["input_ids"]) for feature in features)
        bucket = next((size for size in self.buckets if size >= longest), self.buckets[-1])
        return self._collators[bucket](features)


def block_diagonal(owners: Tensor) -> Tensor:
    """[rows, 1, length, length], added to scores: each token sees those of its document up to itself.

    `owners` tells the document of each token. Padding (-1) sees itself, so that no row is without a key.
    """
    length = owners.shape[1]
    seen = owners[:, :, None] == owners[:, None, :]
    seen &= torch.ones(length, length, dtype=torch.bool).tril()
    hidden = torch.finfo(torch.float32).min
    return torch.zeros(seen.shape).masked_fill_(~seen, hidden)[:, None]


def _document(feature: Mapping[str, Any], number: int) -> tuple[Tensor, Tensor]:
    tokens = torch.as_tensor(feature["input_ids"])
    labels = torch.as_tensor(feature["labels"]) if feature.get("labels") is not None else tokens
    if labels.shape != tokens.shape:
        raise FuselineError(
            f"document {number} of the batch has {len(tokens)} tokens and labels of {list(labels.shape)}",
            hint="packing is for causal language models, which have a label for each token",
        )
    if feature.get("attention_mask") is not None:
        kept = torch.as_tensor(feature["attention_mask"]).bool()
        tokens, labels = tokens[kept], labels[kept]
    if len(tokens) == 0:
        raise FuselineError(f"document {number} of the batch is empty", hint="leave it out of the data")
    return tokens, labels


def _pad_token(model: nn.Module) -> int:
    config = getattr(model, "config", None)
    chosen = getattr(config, "pad_token_id", None)
    return chosen if isinstance(chosen, int) and chosen >= 0 else 0


def _needs_mask(model: nn.Module) -> bool:
    """Whether the model tells documents apart by a mask alone; an error if it does not do so at all."""
    distances = {}
    for masked in (False, True):
        if masked and getattr(getattr(model, "config", None), "sliding_window", None) is not None:
            continue  # a mask would take the place of the model's own
        distances[masked] = _mixing(model, masked)
        if distances[masked] <= _TOLERANCE.get(next(model.parameters()).dtype, 5e-2):
            return masked
    least = min(distances.values())
    found = "takes no positions, or gives no scores for each token"
    if least < float("inf"):
        found = f"mixes documents that share a row: its scores are off by {least:.1e} of the largest"
    raise FuselineError(f"{type(model).__name__} {found}", hint="train it with one document to a row")


@torch.no_grad()
def _mixing(model: nn.Module, masked: bool) -> float:
    """How far the scores of two documents in one row are from those of each alone; infinite if refused."""
    vocabulary = int(getattr(getattr(model, "config", None), "vocab_size", 0)) or 2
    device, training = next(model.parameters()).device, model.training
    # Not drawn, so that making a collator changes nobody's random numbers.
    documents = [torch.arange(1, n + 1)[None] * (n + 2) % vocabulary for n in _TRIED]
    owners = torch.repeat_interleave(torch.arange(len(_TRIED)), torch.tensor(_TRIED))[None]
    packed = {"position_ids": torch.cat([torch.arange(n) for n in _TRIED])[None]}
    if masked:
        packed["attention_mask"] = block_diagonal(owners)
    packed["input_ids"] = torch.cat(documents, 1)
    model.eval()
    try:
        alone = torch.cat([model(input_ids=d.to(device)).logits for d in documents], 1)
        together = model(**{name: value.to(device) for name, value in packed.items()}).logits
        return float((alone - together).abs().max() / alone.abs().max())
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
        return float("inf")
    finally:
        model.train(training)
