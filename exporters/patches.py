"""What torch code must look like while it is traced: the same mathematics, in a form that a graph can hold.

Each patch is a context manager that swaps one name and puts it back. None of them changes a result.
"""

from __future__ import annotations

import builtins
import inspect
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuseline.exporters.convolutions import plain_transposed_convolution
from fuseline.exporters.embeddings import plain_embedding, plain_embedding_bag
from fuseline.exporters.inputs import IGNORE_INDEX
from fuseline.exporters.layerdrop import dropped_layers, keep_every_layer
from fuseline.exporters.pooling import counted_average_pool
from fuseline.exporters.probabilities import plain_binary_cross_entropy
from fuseline.exporters.randomness import drawn_by_dropout, traceable_neftune
from fuseline.exporters.recurrent import stepwise_recurrence
from fuseline.exporters.resizing import plain_resize
from fuseline.exporters.swapping import swapped

__all__ = [
    "fixed_squeeze",
    "len_as_size",
    "pairwise_einsum",
    "plain_attention",
    "plain_cross_entropy",
    "plain_drop_path",
    "plain_flip",
    "plain_hardtanh",
    "traceable",
    "without_dropout",
]


@contextmanager
def traceable(model: nn.Module) -> Iterator[None]:
    """All patches that hold for any model."""
    with ExitStack() as stack:
        stack.enter_context(plain_cross_entropy())
        stack.enter_context(plain_attention())
        if model.training:
            stack.enter_context(drawn_by_dropout())
            stack.enter_context(traceable_neftune(model))
        stack.enter_context(dropped_layers(model) if model.training else keep_every_layer())
        stack.enter_context(len_as_size(model))
        stack.enter_context(plain_drop_path(model))
        stack.enter_context(fixed_squeeze())
        stack.enter_context(counted_average_pool())
        if model.training:
            stack.enter_context(plain_binary_cross_entropy())
            stack.enter_context(plain_hardtanh())
            stack.enter_context(plain_flip())
            stack.enter_context(pairwise_einsum())
            stack.enter_context(plain_embedding())
            stack.enter_context(plain_embedding_bag())
            stack.enter_context(plain_resize())
            stack.enter_context(plain_transposed_convolution())
            stack.enter_context(stepwise_recurrence())
        yield


@contextmanager
def plain_cross_entropy() -> Iterator[None]:
    """Cross entropy with a constant ignore index and with label smoothing spelled out.

    ONNX takes the ignore index as an attribute, yet question answering ignores "the length of the
    sequence"; and torch's translation drops label smoothing without a word.
    """
    with swapped(F, "cross_entropy", _make_cross_entropy(F.cross_entropy)):
        yield


def _make_cross_entropy(original: Any) -> Any:
    signature = inspect.signature(original)

    def cross_entropy(*args: Any, **kwargs: Any) -> Tensor:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        options = given.arguments
        target = options["target"]
        if target.is_floating_point():
            return _with_probabilities(options["input"], target, options)
        if not isinstance(options["ignore_index"], int):
            options["target"] = target = torch.where(target == options["ignore_index"], IGNORE_INDEX, target)
            options["ignore_index"] = IGNORE_INDEX
        smoothing = options["label_smoothing"]
        options["label_smoothing"] = 0.0
        hard: Tensor = original(**options)
        return hard if smoothing == 0.0 else (1 - smoothing) * hard + smoothing * _smooth(options)

    return cross_entropy


def _smooth(options: dict[str, Any]) -> Tensor:
    """The part of a label-smoothed loss that is spread over all classes."""
    log_probabilities = F.log_softmax(options["input"], dim=1)
    target, weight = options["target"], options["weight"]
    counted = (target != options["ignore_index"]).to(log_probabilities.dtype)
    share = counted
    if weight is not None:
        shape = [1, -1] + [1] * (log_probabilities.dim() - 2)
        log_probabilities = log_probabilities * weight.reshape(shape)
        share = counted * weight[target.clamp(min=0)]
    loss: Tensor = -log_probabilities.mean(dim=1) * counted
    if options["reduction"] == "none":
        return loss
    return loss.sum() if options["reduction"] == "sum" else loss.sum() / share.sum()


def _with_probabilities(logits: Tensor, target: Tensor, options: dict[str, Any]) -> Tensor:
    """Cross entropy against class probabilities, which ONNX's operator does not know."""
    classes, smoothing = logits.shape[1], options["label_smoothing"]
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    log_probabilities = F.log_softmax(logits, dim=1)
    if options["weight"] is not None:
        shape = [1, -1] + [1] * (logits.dim() - 2)
        log_probabilities = log_probabilities * options["weight"].reshape(shape)
    loss = -(log_probabilities * target).sum(dim=1)
    if options["reduction"] == "none":
        return loss
    return loss.sum() if options["reduction"] == "sum" else loss.mean()


@contextmanager
def plain_attention() -> Iterator[None]:
    """Scaled dot-product attention as products and a softmax.

    Torch's own translation emits Dropout without its training switch, and fails on some masks.
    """
    with swapped(F, "scaled_dot_product_attention", _attention):
        yield


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        groups = query.shape[-3] // key.shape[-3]
        key = key.repeat_interleave(groups, dim=-3)
        value = value.repeat_interleave(groups, dim=-3)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if is_causal:
        below = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = torch.where(below, scores, torch.finfo(scores.dtype).min)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, torch.finfo(scores.dtype).min)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = F.softmax(scores, dim=-1)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        # A row that sees nothing, as at the places of left padding, attends to nothing at all.
        weights = torch.where(attn_mask.any(dim=-1, keepdim=True), weights, 0.0)
    if dropout_p > 0.0:
        weights = F.dropout(weights, dropout_p, training=True)
    return torch.matmul(weights, value)


@contextmanager
def plain_hardtanh() -> Iterator[None]:
    """ReLU6 and Hardtanh by comparisons, so that nothing flows back from the corners.

    They translate to Clip, through whose bounds a gradient does flow; and a value that batch norm centred is
    often exactly on a bound.
    """

    def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
        return torch.where(x <= min_val, min_val, torch.where(x >= max_val, max_val, x))

    def relu6(x: Tensor, inplace: bool = False) -> Tensor:
        return hardtanh(x, 0.0, 6.0)

    with swapped(F, "hardtanh", hardtanh), swapped(F, "relu6", relu6):
        yield


@contextmanager
def pairwise_einsum() -> Iterator[None]:
    """`torch.einsum` of more than two operands, two at a time: such products have a gradient."""
    original = torch.einsum

    def einsum(equation: Any, *given: Any) -> Tensor:
        operands = list(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else list(given)
        plain = isinstance(equation, str) and "." not in equation and "->" in equation
        if not plain or len(operands) < 3:
            return original(equation, *given)
        left, result = equation.replace(" ", "").split("->")
        terms = left.split(",")
        while len(terms) > 2:
            needed = set("".join(terms[2:]) + result)
            kept = "".join(dict.fromkeys(c for c in terms[0] + terms[1] if c in needed))
            operands[:2] = [original(f"{terms[0]},{terms[1]}->{kept}", *operands[:2])]
            terms[:2] = [kept]
        return original(f"{terms[0]},{terms[1]}->{result}", *operands)

    with swapped(torch, "einsum", einsum):
        yield


@contextmanager
def plain_flip() -> Iterator[None]:
    """Reversal by a look-up: it translates to a Slice with a negative step, whose gradient fails."""

    def flip(tensor: Tensor, *given: Any, dims: Any = None) -> Tensor:
        axes = dims if dims is not None else given[0] if len(given) == 1 else given
        for axis in (axes,) if isinstance(axes, int) else axes:
            last = tensor.shape[axis] - 1
            tensor = tensor.index_select(axis, last - torch.arange(last + 1, device=tensor.device))
        return tensor

    with swapped(Tensor, "flip", flip), swapped(torch, "flip", flip):
        yield


@contextmanager
def len_as_size(model: nn.Module) -> Iterator[None]:
    """`len(tensor)` in the model's own source gives the symbolic size instead of a baked number."""

    def size(item: Any) -> Any:
        return item.shape[0] if isinstance(item, Tensor) else builtins.len(item)

    with ExitStack() as stack:
        for name in sorted({type(module).__module__ for module in model.modules()}):
            source = sys.modules.get(name)
            if source is not None and not name.startswith("torch."):
                stack.enter_context(swapped(source, "len", size))
        yield


@contextmanager
def fixed_squeeze() -> Iterator[None]:
    """`squeeze()` without an axis drops the axes that are always 1, never a batch that happens to be 1."""
    original = Tensor.squeeze

    def squeeze(tensor: Tensor, *axes: Any, **options: Any) -> Tensor:
        if axes or options:
            return original(tensor, *axes, **options)
        ones = tuple(i for i, size in enumerate(tensor.shape) if isinstance(size, int) and size == 1)
        return original(tensor, ones) if ones else tensor

    with swapped(Tensor, "squeeze", squeeze), swapped(torch, "squeeze", squeeze):
        yield


@contextmanager
def plain_drop_path(model: nn.Module) -> Iterator[None]:
    """Stochastic depth as dropout on a column of ones: seeded, and switched off like any other dropout."""
    with ExitStack() as stack:
        for module in model.modules():
            if _drops_paths(module):
                stack.enter_context(swapped(module, "forward", _make_drop_path(module)))
        yield


def _drops_paths(module: nn.Module) -> bool:
    """Whether a module runs the stochastic depth of transformers; of that name are others, too."""
    forward = type(module).forward
    home = getattr(forward, "__module__", "").startswith("transformers.models.")
    return home and forward.__qualname__.endswith("DropPath.forward") and hasattr(module, "drop_prob")


def _make_drop_path(module: Any) -> Any:
    rate = float(getattr(module, "drop_prob", 0.0) or 0.0)

    def forward(hidden: Tensor, *_: Any) -> Tensor:
        if rate == 0.0 or not module.training:
            return hidden
        keep = hidden.new_ones((hidden.shape[0],) + (1,) * (hidden.dim() - 1))
        return hidden * F.dropout(keep, rate, training=True)

    return forward


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Torch with every dropout passing through: what the graph computes when its dropout is off."""
    attention = F.scaled_dot_product_attention

    def dropout(hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        return hidden

    def sure_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        *rest: Any,
        **options: Any,
    ) -> Tensor:
        return attention(query, key, value, attn_mask, 0.0, *rest, **options)

    with ExitStack() as stack:
        stack.enter_context(drawn_by_dropout())
        stack.enter_context(keep_every_layer())
        stack.enter_context(swapped(F, "dropout", dropout))
        stack.enter_context(swapped(F, "scaled_dot_product_attention", sure_attention))
        for module in model.modules():
            if _drops_paths(module):
                stack.enter_context(swapped(module, "forward", dropout))
        yield
