"""LayerDrop on the graph: the coin that skips a layer is a dropout of its own, seeded like any other.

A model tosses `torch.rand([])` for each layer and compares it with the rate; Python leaves the layer out.
While a model is traced for training the coin says "keep", and what the layer returns is chosen on the graph:
its result, or its input as if it had not been there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuseline.exporters.errors import ExportError
from fuseline.exporters.swapping import swapped

__all__ = ["dropped_layers", "keep_every_layer"]


class _Coin:
    """A number between 0 and 1 that is only ever compared with a rate."""

    def __init__(self) -> None:
        self.rate = 0.0

    def __lt__(self, rate: float) -> bool:
        self.rate = float(rate)
        return False


@contextmanager
def keep_every_layer() -> Iterator[None]:
    """LayerDrop's coin always lands on "keep"."""
    with _tossing(lambda: 1.0):
        yield


@contextmanager
def dropped_layers(model: nn.Module) -> Iterator[None]:
    """The layers of every list that is tossed for are dropped on the graph."""
    tossed: list[_Coin] = []

    def toss() -> _Coin:
        if tossed and tossed[-1].rate:
            raise ExportError(
                "a coin was tossed for a layer, but no layer of a ModuleList was called after it",
                hint="set the model's layerdrop to 0",
            )
        tossed.append(_Coin())
        return tossed[-1]

    def chosen(layer: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
        rate = tossed[-1].rate if tossed else 0.0
        if not rate:
            return result
        tossed[-1].rate = 0.0
        before = args[0] if args else kwargs["hidden_states"]
        made = _either(result if isinstance(result, Tensor) else result[0], before, rate)
        return made if isinstance(result, Tensor) else (made, *result[1:])

    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    with ExitStack() as stack:
        stack.enter_context(_tossing(toss))
        for layer in {layer for layers in lists for layer in layers}:
            stack.callback(layer.register_forward_hook(chosen, with_kwargs=True).remove)
        yield


def _either(after: Tensor, before: Tensor, rate: float) -> Tensor:
    if rate >= 1.0:
        return before
    # Dropout scales what it keeps; here it only says whether.
    keep = F.dropout(after.new_ones(1), rate, training=True) > 0
    return torch.where(keep, after, before)


@contextmanager
def _tossing(toss: Any) -> Iterator[None]:
    original = torch.rand

    def rand(*size: Any, **options: Any) -> Any:
        return toss() if size == ([],) else original(*size, **options)

    with swapped(torch, "rand", rand):
        yield
