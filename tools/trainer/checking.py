"""The gradient check: before a graph trains, its loss and all its gradients are held against torch's.

On rows of the user's own batch as they are and, where there is an attention mask, without padding, padded on
the right and padded on the left. Dropout passes through on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.engine.errors import FuselineError
from fuseline.engine.execution.autograd import gradients_of
from fuseline.engine.execution.direct import DirectRunner
from fuseline.engine.parameters import Parameter
from fuseline.engine.training.gradients import LOSS_GRADIENT
from fuseline.exporters.patches import without_dropout
from fuseline.exporters.verify import Check, compare, compare_gradient
from fuseline.tools.trainer.items import IGNORE_INDEX, loss_of

__all__ = ["check_against_torch", "padded"]

_MASK = "attention_mask"
_AS_IT_IS = "as it is"


def padded(batch: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The batch as it is, and with other padding, by what was done to it."""
    made = {_AS_IT_IS: dict(batch)}
    mask = batch.get(_MASK)
    if mask is None or mask.dim() != 2 or mask.shape[1] < 3 or mask.is_floating_point():
        return made
    length = mask.shape[1]
    made["without padding"] = {**batch, _MASK: torch.ones_like(mask)}
    for side, places in (("right", slice(length - length // 3, None)), ("left", slice(0, length // 3))):
        changed = torch.ones_like(mask)
        changed[0, places] = 0
        made[f"padded on the {side}"] = {**batch, _MASK: changed} | _unlabelled(batch, mask, places)
    return made


def _unlabelled(batch: Mapping[str, Tensor], mask: Tensor, places: slice) -> dict[str, Tensor]:
    """Labels of single tokens, which padding has none of."""
    labels = batch.get("labels")
    if labels is None or labels.shape != mask.shape or labels.is_floating_point():
        return {}
    labels = labels.clone()
    labels[0, places] = IGNORE_INDEX
    return {"labels": labels}


def check_against_torch(
    model: nn.Module,
    forward: Callable[..., Any],
    runner: DirectRunner,
    trained: list[Parameter],
    named: Mapping[str, Tensor],
    batches: Mapping[str, tuple[Mapping[str, Tensor], Mapping[str, Tensor]]],
) -> list[dict[str, Any]]:
    """One row for the worst of each batch (the call's tensors, the graph's feeds); a mismatch is an error."""
    rows: list[Check] = []
    parameters = [named[p.name] for p in trained]
    for how, (tensors, feeds) in batches.items():
        with _untouched(model), without_dropout(model):
            loss = _loss(forward, tensors, required=how == _AS_IT_IS)
            if loss is None or not torch.isfinite(loss):
                continue  # nothing to compare: torch itself has no loss here
            expected = torch.autograd.grad(loss, parameters, allow_unused=True)
        results = runner({**feeds, LOSS_GRADIENT: torch.tensor(1.0)}, named, seed=0)
        rows.append(compare(how, "loss", loss, results["loss"].numpy()))
        wanted = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, expected, strict=True)]
        largest = max((float(g.abs().max()) for g in wanted if g.numel()), default=0.0)
        found = gradients_of(trained, results)
        compared = [
            compare_gradient(how, p.name, g.detach(), f.numpy(), largest)
            for p, g, f in zip(trained, wanted, found, strict=True)
        ]
        wrong = [c for c in compared if not c.ok]
        rows += wrong or [max(compared, key=lambda c: c.difference)]
    bad = [row for row in rows if not row.ok]
    if bad:
        raise FuselineError(_message(bad), hint="check=False trains with the graph nevertheless")
    return [asdict(row) for row in rows]


def _loss(forward: Callable[..., Any], tensors: Mapping[str, Tensor], *, required: bool) -> Tensor | None:
    """Torch's loss; a batch that torch itself refuses, once it is padded otherwise, is left out."""
    try:
        return loss_of(forward(**tensors))
    except Exception:
        if required:
            raise
        return None


def _message(bad: list[Check]) -> str:
    worst = sorted(bad, key=lambda c: -c.difference)
    listed = "; ".join(f"{c.output} by {c.difference:.1e} ({c.shape})" for c in worst[:5])
    more = f" and {len(worst) - 5} more" if len(worst) > 5 else ""
    return f"on this batch the graph does not give torch's gradients: {listed}{more}"


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """The model in training, with its buffers, modes and the random state as before once this is over."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(b, b.clone()) for b in model.buffers()]
    model.train()
    try:
        with torch.random.fork_rng(devices=()), torch.enable_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
