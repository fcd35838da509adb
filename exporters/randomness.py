"""Random numbers of a forward on the graph: made of dropout's bits, so that they are seeded as dropout is.

ONNX's own random operators are seeded when a session is made, and never again. What a uniform number needs
is coins, and dropout tosses them: of ones, with even chances, it makes 0 or 2. Where dropout passes through,
in a check, every number is the same one, in torch as on the graph.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuseline.exporters.swapping import swapped

__all__ = ["drawn_by_dropout", "traceable_neftune"]

#: As many as a float32 below 1 can tell apart.
_BITS = 24
_NEFTUNE = "neftune_post_forward_hook"


@contextmanager
def drawn_by_dropout() -> Iterator[None]:
    """What draws from torch's stream draws from dropout's; a generator of the caller's own stays."""
    with ExitStack() as stack:
        for holder, name, make in _DRAWING:
            original = getattr(holder, name)
            stack.enter_context(swapped(holder, name, _unless_generated(original, make)))
        yield


@contextmanager
def traceable_neftune(model: nn.Module) -> Iterator[None]:
    """NEFTune's hook in a form that leaves the length of a sequence free."""
    found = [
        (module._forward_hooks, key, hook)
        for module in model.modules()
        for key, hook in module._forward_hooks.items()
        if getattr(hook, "__name__", "") == _NEFTUNE
    ]
    try:
        for hooks, key, _ in found:
            hooks[key] = _noisy
        yield
    finally:
        for hooks, key, hook in found:
            hooks[key] = hook


def _noisy(module: Any, given: Any, output: Tensor) -> Tensor:
    if not module.training:
        return output
    bound = module.neftune_noise_alpha / torch.sqrt(torch.ones_like(output[0]).sum())
    noisy: Tensor = output + bound * (2 * _uniform(output.shape) - 1)
    return noisy


def _unless_generated(original: Callable[..., Any], make: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(*args: Any, generator: Any = None, **options: Any) -> Any:
        # Torch's own machinery draws too, for a dropout among others.
        inner = sys._getframe(1).f_globals.get("__name__", "").startswith("torch._")
        if generator is not None or options.get("out") is not None:
            return original(*args, generator=generator, **options)
        if inner:
            return original(*args, **options)
        return make(*args, **options)

    return drawn


def _uniform(shape: Sequence[int]) -> Tensor:
    """From 0 to below 1, in steps of 2⁻²⁴."""
    coins = F.dropout(torch.ones(*shape, _BITS), 0.5, training=True)
    return coins @ torch.tensor([0.5 ** (place + 2) for place in range(_BITS)])


def _normal(shape: Sequence[int]) -> Tensor:
    """By Box and Muller."""
    radius = torch.sqrt(-2 * torch.log(1 - _uniform(shape)))
    return radius * torch.cos(2 * math.pi * _uniform(shape))


def _sized(draw: Callable[[Sequence[int]], Tensor]) -> Callable[..., Tensor]:
    def make(*size: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
        given = options.get("size", size[0] if len(size) == 1 and not _is_number(size[0]) else size)
        return draw(tuple(given)).to(dtype or torch.get_default_dtype())

    return make


def _is_number(size: Any) -> bool:
    return isinstance(size, (int, torch.SymInt))


def _like(draw: Callable[[Sequence[int]], Tensor]) -> Callable[..., Tensor]:
    def make(like: Tensor, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return draw(like.shape).to(dtype or like.dtype)

    return make


def _fill_uniform(tensor: Tensor, *bounds: Any, **named: Any) -> Tensor:
    low, high = (*bounds, *(named.get(name, d) for name, d in (("from", 0.0), ("to", 1.0))[len(bounds) :]))
    return tensor.copy_(low + (high - low) * _uniform(tensor.shape))


def _fill_normal(tensor: Tensor, mean: Any = 0.0, std: Any = 1.0) -> Tensor:
    return tensor.copy_(mean + std * _normal(tensor.shape))


def _fill_exponential(tensor: Tensor, lambd: float = 1.0) -> Tensor:
    return tensor.copy_(-torch.log(1 - _uniform(tensor.shape)) / lambd)


def _fill_bernoulli(tensor: Tensor, p: Any = 0.5) -> Tensor:
    return tensor.copy_(_uniform(tensor.shape) < p)


def _bernoulli(chances: Tensor, p: float | None = None) -> Tensor:
    return (_uniform(chances.shape) < (chances if p is None else p)).to(chances.dtype)


_DRAWING: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (torch, "rand", _sized(_uniform)),
    (torch, "randn", _sized(_normal)),
    (torch, "rand_like", _like(_uniform)),
    (torch, "randn_like", _like(_normal)),
    (torch, "bernoulli", _bernoulli),
    (Tensor, "uniform_", _fill_uniform),
    (Tensor, "normal_", _fill_normal),
    (Tensor, "exponential_", _fill_exponential),
    (Tensor, "bernoulli_", _fill_bernoulli),
)
