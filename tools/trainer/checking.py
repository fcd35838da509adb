"""The gradient check: before a graph trains, its loss and all its gradients are held against torch's.

On two rows of the user's own batch as they are and, where there is an attention mask, without padding, and
with one padded on the right and one on the left. Dropout passes through on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.engine.errors import FuselineError
from fuseline.engine.execution.autograd import gradients_of
from fuseline.engine.execution.direct import DirectRunner
from fuseline.engine.parameters import Parameter
from fuseline.engine.training.gradients import LOSS_GRADIENT
from fuseline.exporters.patches import without_dropout
from fuseline.exporters.results import flatten, loss_in
from fuseline.exporters.verify import Check, compare, compare_gradient, gradient_scale, largest_of
from fuseline.tools.trainer.effects import Buffers
from fuseline.tools.trainer.items import IGNORE_INDEX, loss_of
from fuseline.tools.trainer.low_precision import in_float64

__all__ = ["check_against_torch", "evaluation_differs", "padded"]

_MASK = "attention_mask"
_AS_IT_IS = "as it is"
# Rounding of a sum of terms: a few units in the last place of float32.
_LAST_BITS = 16 * 2.0**-23
# Two computations round differently, and by chance one of them is near the exact result.
_TIMES_OWN_ROUNDING = 16


def padded(batch: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The batch as it is, and with other padding, by what was done to it."""
    made = {_AS_IT_IS: dict(batch)}
    mask = batch.get(_MASK)
    if mask is None or mask.dim() != 2 or mask.shape[1] < 3 or mask.is_floating_point():
        return made
    length = mask.shape[1]
    if not bool(mask.all()):
        made["without padding"] = {**batch, _MASK: torch.ones_like(mask)}
    sides = {"right": slice(length - length // 3, None), "left": slice(0, length // 3)}
    if mask.shape[0] > 1:  # both sides in one run, a row each
        made["a row padded on the right, one padded on the left"] = _padded_at(batch, mask, [*sides.values()])
    else:
        made.update({f"padded on the {side}": _padded_at(batch, mask, [at]) for side, at in sides.items()})
    return made


def _padded_at(batch: Mapping[str, Tensor], mask: Tensor, places: list[slice]) -> dict[str, Tensor]:
    """The batch with padding at `places` of its first rows, which have no labels of single tokens there."""
    changed, labels = torch.ones_like(mask), batch.get("labels")
    of_tokens = labels is not None and labels.shape == mask.shape and not labels.is_floating_point()
    labels = labels.clone() if labels is not None and of_tokens else None
    for row, place in enumerate(places):
        changed[row, place] = 0
        if labels is not None:
            labels[row, place] = IGNORE_INDEX
    return {**batch, _MASK: changed} | ({} if labels is None else {"labels": labels})


def check_against_torch(
    model: nn.Module,
    forward: Callable[..., Any],
    runner: DirectRunner,
    trained: list[Parameter],
    named: Mapping[str, Tensor],
    batches: Mapping[str, tuple[Mapping[str, Tensor], Mapping[str, Tensor]]],
) -> list[dict[str, Any]]:
    """One row for the worst of each batch (the call's tensors, the graph's feeds); a mismatch is an error.

    A weight that is trained and has no gradient in the graph must have none in torch.
    """
    rows: list[Check] = []
    compared_to = {id(named[p.name]): p.name for p in trained}
    for name, tensor in named.items():
        if tensor.requires_grad:
            compared_to.setdefault(id(tensor), name)
    names = list(compared_to.values())
    parameters = [named[name] for name in names]
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
        found = [gradient.numpy() for gradient in gradients_of(trained, results)]
        compared = [
            compare_gradient(how, name, g.detach(), f, largest)
            for name, g, f in zip_longest(names, wanted, found)
        ]
        if not all(c.ok for c in compared):
            with _untouched(model), without_dropout(model):
                compared = _allow_for_rounding(compared, wanted, model, forward, tensors, parameters)
        wrong = [c for c in compared if not c.ok]
        rows += wrong or [max(compared, key=lambda c: c.difference)]
    bad = [row for row in rows if not row.ok]
    if bad:
        raise FuselineError(_message(bad), hint="check=False trains with the graph nevertheless")
    return [asdict(row) for row in rows]


def evaluation_differs(result: Any, found: Mapping[str, Tensor], mask: Tensor | None) -> str | None:
    """How the graph's results in evaluation differ from what torch returned for the same batch.

    Only what is computed with: whole numbers may be another index of two that tie, and what stands at padding
    is anybody's.
    """
    loss = loss_in(result)
    others = [tensor for tensor in flatten(result).values() if tensor is not loss]
    if loss is not None and torch.isfinite(loss):
        others.insert(0, loss)
    elif loss is not None:
        found = {name: value for name, value in found.items() if name != "loss"}
    if len(others) != len(found):
        return f"it returns {len(others)} tensors in evaluation, and {len(found)} in training"
    for wanted, (name, value) in zip(others, found.items(), strict=True):
        if not wanted.is_floating_point() or not torch.isfinite(wanted).all():
            continue
        if mask is not None and wanted.shape[:2] == mask.shape and wanted.shape == value.shape:
            wanted, value = wanted[mask.bool()], value[mask.bool()]
        check = compare("", name, wanted.float(), value.float().numpy())
        if not check.ok:
            return f"in evaluation its {name} is not the one of its training: {check.difference:.1e} away"
    return None


def _allow_for_rounding(
    compared: list[Check],
    wanted: list[Tensor],
    model: nn.Module,
    forward: Callable[..., Any],
    tensors: Mapping[str, Any],
    parameters: list[Tensor],
) -> list[Check]:
    """The same with what torch's own gradients owe to the rounding of float32.

    Two rows with opposite labels, and the gradient of the head's bias is a ten-thousandth of each row's; a
    norm over two rows, and next to nothing is left of the gradient in front of it. What float32 keeps of
    these is mostly rounding, torch's as well. A wrong gradient is off by far more than that.
    """
    terms = _by_rows(forward, tensors, parameters)
    noise = _in_double(model, forward, tensors, parameters, wanted)
    largest = _largest(wanted)
    return [
        replace(check, tolerance=max(check.tolerance, max(term, own) / gradient_scale(gradient, largest)))
        for check, term, own, gradient in zip(compared, terms, noise, wanted, strict=True)
    ]


def _by_rows(
    forward: Callable[..., Any], tensors: Mapping[str, Any], parameters: list[Tensor]
) -> list[float]:
    """Some last bits of what each row adds to a gradient, where they may cancel in their sum."""
    rows = max((v.shape[0] for v in tensors.values() if isinstance(v, Tensor) and v.dim()), default=0)
    terms = [0.0] * len(parameters)
    for row in range(rows):
        alone = {
            name: v[row : row + 1] if isinstance(v, Tensor) and v.dim() and v.shape[0] == rows else v
            for name, v in tensors.items()
        }
        loss = _loss(forward, alone, required=False)
        if loss is None:
            return [0.0] * len(parameters)  # the model takes no single row
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        terms = [t + (0.0 if g is None else _largest([g])) for t, g in zip(terms, found, strict=True)]
    return [_LAST_BITS * term for term in terms]


def _in_double(
    model: nn.Module,
    forward: Callable[..., Any],
    tensors: Mapping[str, Any],
    parameters: list[Tensor],
    wanted: list[Tensor],
) -> list[float]:
    """How far torch's gradients are from those that it has in float64, a few times over."""
    floats = (torch.float32,)
    given = {n: v.double() if isinstance(v, Tensor) and v.dtype in floats else v for n, v in tensors.items()}
    with in_float64(model):
        loss = _loss(forward, given, required=False)
        if loss is None or loss.dtype != torch.float64:
            return [0.0] * len(parameters)  # its code insists on float32
        exact = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [
        0.0 if e is None else _TIMES_OWN_ROUNDING * float((e.detach() - g.detach()).abs().max())
        for e, g in zip(exact, wanted, strict=True)
    ]


def _largest(gradients: list[Tensor]) -> float:
    return max((largest_of(g.detach()) for g in gradients), default=0.0)


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
    buffers = Buffers(model)
    model.train()
    try:
        with torch.random.fork_rng(devices=()), torch.enable_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
        buffers.restore()
