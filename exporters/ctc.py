"""The CTC loss as ordinary operators, since ONNX has none: the forward recursion, unrolled over time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["ctc_loss"]

#: The logarithm of zero, but finite: differences of it stay numbers.
_NEVER = -1e30


def ctc_loss(
    logits: Tensor,
    labels: Tensor,
    logit_lengths: Tensor,
    blank_token_id: int,
    reduction: str = "sum",
    zero_infinity: bool = False,
) -> Tensor:
    """The loss of transformers' CTC models; labels end in padding (a negative number or the blank)."""
    log_probabilities = F.log_softmax(logits.float(), dim=-1)
    lengths = ((labels >= 0) & (labels != blank_token_id)).sum(dim=-1)
    states = _with_blanks(labels.clamp(min=0), blank_token_id)
    likelihood = _forward(log_probabilities, states, logit_lengths, blank_token_id)
    # A path ends in the last blank or in the last label.
    last_blank = likelihood.gather(1, 2 * lengths[:, None])
    last_label = likelihood.gather(1, (2 * lengths[:, None] - 1).clamp(min=0))
    loss = -_log_add(last_blank, last_label).squeeze(1)
    if zero_infinity:
        loss = torch.where(loss > -_NEVER / 2, 0.0, loss)
    return loss.sum() if reduction == "sum" else (loss / lengths.clamp(min=1)).mean()


def _with_blanks(labels: Tensor, blank: int) -> Tensor:
    """blank, label, blank, label, …, blank."""
    blanks = torch.full_like(labels, blank)
    pairs = torch.stack([blanks, labels], dim=-1).reshape(labels.shape[0], 2 * labels.shape[1])
    return torch.cat([pairs, blanks[:, :1]], dim=1)


def _forward(log_probabilities: Tensor, states: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """The log-likelihood of being in each state after all frames of each row."""
    frames, count = log_probabilities.shape[1], states.shape[1]
    emitted = log_probabilities.gather(2, states[:, None].expand(-1, frames, -1))
    before_last = F.pad(states, (2, 0), value=blank)[:, :count]
    may_skip = (states != blank) & (states != before_last)
    begins = torch.arange(count) < 2
    current = torch.where(begins, emitted[:, 0], _NEVER)
    for frame in range(1, frames):
        from_last = F.pad(current, (1, 0), value=_NEVER)[:, :count]
        from_before = torch.where(may_skip, F.pad(current, (2, 0), value=_NEVER)[:, :count], _NEVER)
        reached = _log_add(_log_add(current, from_last), from_before) + emitted[:, frame]
        current = torch.where((frame < lengths)[:, None], reached, current)
    return current


def _log_add(a: Tensor, b: Tensor) -> Tensor:
    """log(exp a + exp b), from operators that have a gradient everywhere."""
    difference = b - a
    larger = torch.where(difference > 0, b, a)
    return larger + torch.log1p(torch.exp(-difference.abs()))
