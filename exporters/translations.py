"""Translations of torch operators to ONNX where torch's own are wrong for training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18

__all__ = ["training_translations"]

# onnxscript's operators are typed for eager evaluation; while translating they take symbols.
op: Any = opset18


def training_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Torch operator → translation, for `torch.onnx.export`."""
    return {torch.ops.aten._native_batch_norm_legit_functional.default: _batch_norm}


def _batch_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Batch norm that really normalises by the batch in training; torch's translation never does.

    ONNX's running variance takes the batch variance as it is, torch's the unbiased one: the new running
    variance is therefore computed beside the operator.
    """
    kept = 1.0 - momentum
    channels = op.Shape(x, start=1, end=2)
    weight = op.Expand(op.Constant(value_float=1.0), channels) if weight is None else weight
    bias = op.Expand(op.Constant(value_float=0.0), channels) if bias is None else bias
    if not training:
        y = op.BatchNormalization(x, weight, bias, running_mean, running_var, epsilon=eps, momentum=kept)
        return y, running_mean, running_var, op.Identity(running_mean), op.Identity(running_var)
    y, new_mean, biased_var = op.BatchNormalization(
        x, weight, bias, running_mean, running_var, epsilon=eps, momentum=kept, training_mode=1
    )
    count = op.Cast(op.Div(op.Size(x), op.Squeeze(channels)), to=1)
    unbias = op.Div(count, op.Sub(count, op.Constant(value_float=1.0)))
    old_share = op.Mul(running_var, op.Constant(value_float=kept))
    new_var = op.Add(old_share, op.Mul(op.Sub(biased_var, old_share), unbias))
    # The saved statistics serve torch's own backward only; nothing in a forward graph reads them.
    return y, new_mean, new_var, new_mean, new_var
