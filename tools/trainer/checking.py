"""The gradient check: before a graph trains, its loss and all its gradients are held against torch's.

On rows of the user's own batch as they are and, where there is an attention mask, without padding, padded on
the right and padded on the left. Dropout passes through on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.engine.errors import FuselineError
from fuseline.engine.execution.autograd import gradients_of
from fuseline.engine.execution.direct import DirectRunner
from fuseline.engine.parameters import Parameter
from fuseline.engine.training.gradients import LOSS_GRADIENT
from fuseline.exporters.patches import without_dropout
from fuseline.exporters.verify import Check, compare, compare_gradient, gradient_scale
from fuseline.tools.trainer.items import IGNORE_INDEX, loss_of

__all__ = ["check_against_torch", "padded"]

_MASK = "attention_mask"
_AS_IT_IS = "as it is"
# Rounding of a sum of terms: a few units in the last place of float32.
_LAST_BITS = 16 * 2.0**-23


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
        largest = _largest(wanted)
        found = gradients_of(trained, results)
        compared = [
            compare_gradient(how, p.name, g.detach(), f.numpy(), largest)
            for p, g, f in zip(trained, wanted, found, strict=True)
        ]
        if not all(c.ok for c in compared):
            with _untouched(model), without_dropout(model):
                compared = _allow_for_rounding(compared, wanted, forward, tensors, parameters)
        wrong = [c for c in compared if not c.ok]
        rows += wrong or [max(compared, key=lambda c: c.difference)]
    bad = [row for row in rows if not row.ok]
    if bad:
        raise FuselineError(_message(bad), hint="check=False trains with the graph nevertheless")
    return [asdict(row) for row in rows]


def _allow_for_rounding(
    compared: list[Check],
    wanted: list[Tensor],
    forward: Callable[..., Any],
    tensors: Mapping[str, Any],
    parameters: list[Tensor],
) -> list[Check]:
    """The same with some last bits of what the rows' gradients are, where they cancel in their sum.

    Two rows with opposite labels, and the gradient of the head's bias is a ten-thousandth of each row's: what
    float32 keeps of it is mostly rounding, torch's as well. A wrong gradient is off by far more than that.
    """
    rows = max((v.shape[0] for v in tensors.values() if isinstance(v, Tensor) and v.dim()), default=0)
    terms = [0.0] * len(parameters)
    for row in range(rows):
        alone = {
            name: v[row : row + 1] if isinstance(v, Tensor) and v.dim() and v.shape[0] == rows else v
            for name, v in tensors.items()
        }
        loss = _loss(forward, alone, required=False)
        if loss is None:
            return compared  # the model takes no single row
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        terms = [t + (0.0 if g is None else _largest([g])) for t, g in zip(terms, found, strict=True)]
    largest = _largest(wanted)
    return [
        replace(check, tolerance=max(check.tolerance, _LAST_BITS * term / gradient_scale(gradient, largest)))
        for check, term, gradient in zip(compared, terms, wanted, strict=True)
    ]


def _largest(gradients: list[Tensor]) -> float:
    return max((float(g.detach().abs().max()) for g in gradients if g.numel()), default=0.0)


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
