"""LayerDrop on the graph: the coin that skips a layer is a dropout of its own, seeded like any other.

A model tosses `torch.rand([])` for each layer and compares it with the rate; Python leaves the layer out.
While a model is traced for training the coin says "keep", and what the layer returns is chosen on the graph:
its result, or its input as if it had not been there. That a model which tosses a coin means just that is
tried in torch before: coins decide other things, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuseline.exporters.errors import ExportError
from fuseline.exporters.swapping import swapped

__all__ = ["check_dropped_layers", "dropped_layers", "keep_every_layer"]

_HINT = "set the model's layerdrop to 0"
#: What a layer gives: of its result, its input, the rate and the place of the coin.
_Choose = Callable[[Tensor, Tensor, float, int], Tensor]


class _Coin:
    """A number between 0 and 1 that is only ever compared with a rate."""

    def __init__(self, low: bool = False) -> None:
        self.rate = 0.0
        self.low = low

    def __lt__(self, rate: float) -> bool:
        self.rate = float(rate)
        return self.low and self.rate > 0.0


@contextmanager
def keep_every_layer() -> Iterator[None]:
    """LayerDrop's coin always lands on "keep"."""
    with _tossing(lambda: 1.0):
        yield


@contextmanager
def dropped_layers(model: nn.Module) -> Iterator[None]:
    """The layers of every list that is tossed for are dropped on the graph."""
    with _chosen_after_each_layer(model, lambda after, before, rate, _: _either(after, before, rate)):
        yield


def check_dropped_layers(model: nn.Module, run: Callable[[], Mapping[str, Tensor]]) -> None:
    """Torch, leaving out the layers that coins decide, computes what the graph will; if not, an error."""
    if not any(coin.rate for coin in _tossed_low(run, lambda _: False)[1]):
        return
    outcomes: tuple[Callable[[int], bool], ...] = (lambda _: True, lambda n: n % 2 == 0, lambda n: n % 2 == 1)
    for low in outcomes:
        expected, _ = _tossed_low(run, low)
        with _chosen_after_each_layer(model, _input_where(low)):
            actual = run()
        if not all(_same(value, actual[name]) for name, value in expected.items()):
            raise ExportError(
                f"{type(model).__name__} tosses coins that do more than leave a layer of a ModuleList out",
                hint=_HINT,
            )


def _input_where(low: Callable[[int], bool]) -> _Choose:
    return lambda after, before, _, place: before if low(place) else after


def _tossed_low(
    run: Callable[[], Mapping[str, Tensor]], low: Callable[[int], bool]
) -> tuple[Mapping[str, Tensor], list[_Coin]]:
    """What torch computes where the n-th coin lands below its rate as `low` says, and the coins."""
    tossed: list[_Coin] = []

    def toss() -> _Coin:
        tossed.append(_Coin(low(len(tossed))))
        return tossed[-1]

    with _tossing(toss):
        return run(), tossed


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


@contextmanager
def _chosen_after_each_layer(model: nn.Module, choose: _Choose) -> Iterator[None]:
    """Every coin says "keep"; the layer after the n-th gives `choose(its result, its input, the rate, n)`."""
    tossed: list[_Coin] = []

    def unspent() -> None:
        if tossed and tossed[-1].rate:
            raise ExportError(
                "a coin was tossed for a layer, but no layer of a ModuleList was called after it", hint=_HINT
            )

    def toss() -> _Coin:
        unspent()
        tossed.append(_Coin())
        return tossed[-1]

    def chosen(layer: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
        rate = tossed[-1].rate if tossed else 0.0
        if not rate:
            return result
        tossed[-1].rate = 0.0
        before = args[0] if args else kwargs["hidden_states"]
        made = choose(result if isinstance(result, Tensor) else result[0], before, rate, len(tossed) - 1)
        return made if isinstance(result, Tensor) else (made, *result[1:])

    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    with ExitStack() as stack:
        stack.enter_context(_tossing(toss))
        for layer in {layer for layers in lists for layer in layers}:
            stack.callback(layer.register_forward_hook(chosen, with_kwargs=True).remove)
        yield
    unspent()


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
