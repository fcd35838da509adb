"""Graph inputs as declarations, and random batches made from them.

An `Input` names its axes; a named axis is dynamic, a number is fixed. The same declaration gives the
example that torch traces, the dynamic axes of the graph and every batch that a check runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

__all__ = ["IGNORE_INDEX", "Input", "Padding", "Sizes", "fill_names", "sample"]

IGNORE_INDEX = -100

Sizes = Mapping[str, int]
#: On which side the shorter rows of a batch are filled up.
Padding = Literal["none", "left", "right"]
Batch = dict[str, Tensor]
Fill = Callable[["_Context"], Tensor]


@dataclass(frozen=True)
class Input:
    """One graph input: its name, its axes and how a random value of it looks."""

    name: str
    axes: tuple[str | int, ...]
    fill: str
    #: What a caller that lacks this input may feed in every element; None: it must be given.
    default: float | None = None

    @property
    def dynamic(self) -> dict[int, str]:
        """Axis number → symbol, for the axes that may change from batch to batch."""
        return {i: axis for i, axis in enumerate(self.axes) if isinstance(axis, str)}

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[axis] if isinstance(axis, str) else axis for axis in self.axes)


@dataclass(frozen=True)
class _Context:
    """All that a fill may look at: the shape asked for, the model's config and the batch so far."""

    shape: tuple[int, ...]
    config: Any
    made: Batch
    rng: torch.Generator
    padding: Padding

    def integers(self, low: int, high: int) -> Tensor:
        return torch.randint(low, max(high, low + 1), self.shape, generator=self.rng)

    def setting(self, name: str, default: int) -> int:
        """A setting of the config, or of its text part in a two-tower model."""
        for holder in (self.config, getattr(self.config, "text_config", None)):
            value = getattr(holder, name, None)
            if isinstance(value, int):
                return value
        return default


def sample(
    inputs: Sequence[Input], sizes: Sizes, config: Any = None, seed: int = 0, padding: Padding = "right"
) -> Batch:
    """A random batch: one tensor per input, the same for the same seed, sizes and padding."""
    rng = torch.Generator().manual_seed(seed)
    made: Batch = {}
    for item in inputs:
        made[item.name] = _FILLS[item.fill](_Context(item.shape(sizes), config, made, rng, padding))
    _pad(made, config)
    return made


def fill_names() -> list[str]:
    """The kinds of random value that an `Input` may ask for."""
    return sorted(_FILLS)


def _pad(batch: Batch, config: Any) -> None:
    """Put the pad token where the mask hides, as a tokenizer would."""
    pad = getattr(config, "pad_token_id", None)
    ids, mask = batch.get("input_ids"), batch.get("attention_mask")
    if ids is None or mask is None or not isinstance(pad, int) or ids.shape != mask.shape:
        return
    if 0 <= pad < getattr(config, "vocab_size", 0):
        ids.masked_fill_(mask == 0, pad)


def _tokens(context: _Context) -> Tensor:
    # The first ids are special tokens almost everywhere; real text rarely holds them.
    ids = context.integers(5, context.setting("vocab_size", 32))
    # CLIP-like models pool at the end-of-text token.
    if getattr(context.config, "text_config", None) is not None:
        ids[..., -1] = context.setting("eos_token_id", 2)
    return ids


def _mask(context: _Context) -> Tensor:
    """The first row is full; the others are at least half as long, and filled up on one side."""
    if context.padding == "none":
        return torch.ones(context.shape, dtype=torch.int64)
    length = context.shape[-1]
    rows = torch.Size(context.shape[:-1]).numel()
    lengths = torch.randint((length + 1) // 2, length + 1, (rows,), generator=context.rng)
    lengths[0] = length
    places = torch.arange(length) if context.padding == "right" else torch.arange(length).flip(0)
    mask = places[None, :] < lengths[:, None]
    return mask.long().reshape(context.shape)


def _segments(context: _Context) -> Tensor:
    length = context.shape[-1]
    return (torch.arange(length) >= length // 2).long().expand(context.shape).clone()


def _classes(context: _Context) -> Tensor:
    return context.integers(0, getattr(context.config, "num_labels", 2))


def _choices(context: _Context) -> Tensor:
    return context.integers(0, context.made["input_ids"].shape[1])


def _positions(context: _Context) -> Tensor:
    return context.integers(0, context.made["input_ids"].shape[-1])


def _token_classes(context: _Context) -> Tensor:
    return _hide_padding(_classes(context), context)


def _next_tokens(context: _Context) -> Tensor:
    return _hide_padding(context.made["input_ids"].clone(), context)


def _masked_tokens(context: _Context) -> Tensor:
    """Labels at about a third of the places, and at the first of each row so that none is empty."""
    keep = torch.rand(context.shape, generator=context.rng) < 0.3
    keep[..., 0] = True
    ids = context.integers(5, context.setting("vocab_size", 32))
    return torch.where(keep, ids, IGNORE_INDEX)


def _target_tokens(context: _Context) -> Tensor:
    """Target sentences whose tails, except the first row's, are padding; labels are padded on the right."""
    ids = context.integers(5, context.setting("vocab_size", 32))
    return torch.where(_mask(replace(context, padding="right")).bool(), ids, IGNORE_INDEX)


def _transcript(context: _Context) -> Tensor:
    """A transcript without blanks: the alphabet without the pad token, which CTC uses as its blank."""
    return context.integers(5, context.setting("vocab_size", 32))


def _normal(context: _Context) -> Tensor:
    return torch.randn(context.shape, generator=context.rng)


def _indicators(context: _Context) -> Tensor:
    return context.integers(0, 2).float()


def _hide_padding(labels: Tensor, context: _Context) -> Tensor:
    mask = context.made.get("attention_mask")
    return labels if mask is None else labels.masked_fill(mask == 0, IGNORE_INDEX)


_FILLS: dict[str, Fill] = {
    "choices": _choices,
    "classes": _classes,
    "indicators": _indicators,
    "mask": _mask,
    "masked-tokens": _masked_tokens,
    "next-tokens": _next_tokens,
    "normal": _normal,
    "positions": _positions,
    "segments": _segments,
    "target-tokens": _target_tokens,
    "token-classes": _token_classes,
    "tokens": _tokens,
    "transcript": _transcript,
}
