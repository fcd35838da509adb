"""What a model's loss does with `num_items_in_batch`, found out by trying.

The Trainer hands the number of label items of a whole optimizer step to models that accept it; most losses
then divide a sum by it instead of taking the mean, and some ignore it. The exported graph has the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from fuseline.engine.errors import FuselineError
from fuseline.exporters.results import loss_in

__all__ = ["IGNORE_INDEX", "ItemRule", "find_rule", "loss_of", "scale"]

IGNORE_INDEX = -100

#: ignored: the argument changes nothing; labels: the loss is the sum over labels divided by it; shifted: the
#: same with the first label of each row left out; unknown: neither.
ItemRule = Literal["ignored", "labels", "shifted", "unknown"]


def find_rule(forward: Callable[..., Any], batch: Mapping[str, Tensor]) -> ItemRule | None:
    """Compare the loss with and without the argument on a small batch (model in evaluation mode).

    None if this batch cannot tell: its loss is 0 or not a number.
    """
    batch = dict(batch)
    labels = batch.get("labels")
    if labels is None:
        return "ignored"
    if labels.dim() > 1 and not labels.is_floating_point():
        # A first column that counts tells "labels" from "shifted".
        batch["labels"] = labels = torch.cat([torch.zeros_like(labels[..., :1]), labels[..., 1:]], dim=-1)
    # A number that no count of the batch is: with one label, its mean and its sum are the same.
    items = 2 * labels.numel() + 1
    mean = float(loss_of(forward(**batch)))
    divided = float(loss_of(forward(**batch, num_items_in_batch=torch.tensor(items))))
    if not math.isfinite(mean) or not math.isfinite(divided) or mean == 0:
        return None
    if _close(mean, divided):
        return "ignored"
    fitting: list[ItemRule] = [
        rule for rule in ("labels", "shifted") if _close(divided * items, mean * _count(labels, rule))
    ]
    if len(fitting) == 2:
        # No column to leave out: with labels of one axis there is nothing to shift.
        return "labels" if labels.dim() == 1 else None
    return fitting[0] if fitting else "unknown"


def loss_of(output: Any) -> Tensor:
    """The loss in what a model returned, which comes first where nothing has a name."""
    loss = loss_in(output)
    if loss is None:
        raise FuselineError("the model returned no loss for this batch")
    return loss


def scale(rule: ItemRule, labels: Tensor | None, items: Tensor | int) -> float:
    """The factor that turns the graph's mean into what torch would return."""
    if rule == "ignored" or labels is None:
        return 1.0
    return _count(labels, rule) / float(items)


def _count(labels: Tensor, rule: ItemRule) -> int:
    counted = labels[..., 1:] if rule == "shifted" and labels.dim() > 1 else labels
    return int(counted.ne(IGNORE_INDEX).sum())


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-4 * max(abs(a), abs(b), 1e-12)
