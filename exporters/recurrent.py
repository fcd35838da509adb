"""LSTM, GRU and RNN step by step: ONNX Runtime has no gradient for operators that run a whole sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules import rnn

from fuseline.exporters.errors import ExportError
from fuseline.exporters.swapping import swapped

__all__ = ["stepwise_recurrence"]

#: (what comes in at one step, multiplied by its weights; the state; the layer's weights) → the new state
Cell = Callable[[Tensor, tuple[Tensor, ...], Sequence[Tensor]], tuple[Tensor, ...]]


@contextmanager
def stepwise_recurrence() -> Iterator[None]:
    """`nn.LSTM`, `nn.GRU` and `nn.RNN` unrolled over sequences of a length that is known."""
    original: Any = vars(rnn)["_VF"]
    cells: dict[str, Cell] = {
        "lstm": _lstm,
        "gru": _gru,
        "rnn_tanh": lambda x, state, weights: (torch.tanh(x + _product(state[0], weights)),),
        "rnn_relu": lambda x, state, weights: (torch.relu(x + _product(state[0], weights)),),
    }
    made = {name: _unrolled(cell, name) for name, cell in cells.items()}
    kept = {
        name: getattr(original, name) for name in ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
    }
    with swapped(rnn, "_VF", SimpleNamespace(**made, **kept)):
        yield


def _unrolled(cell: Cell, name: str) -> Callable[..., Any]:
    def run(
        inputs: Tensor,
        state: Any,
        weights: Sequence[Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        training: bool,
        bidirectional: bool,
        *batch_first: bool,
    ) -> tuple[Tensor, ...]:
        if not batch_first or not isinstance(inputs, Tensor) or inputs.dim() != 3:
            raise ExportError(
                f"a packed sequence goes into nn.{name.upper()}",
                hint="give padded sequences, and mask the loss",
            )
        hidden = inputs if batch_first[0] else inputs.transpose(0, 1)
        states = state if isinstance(state, tuple) else (state,)
        directions = 2 if bidirectional else 1
        per_direction = len(weights) // (layers * directions)
        ends: list[tuple[Tensor, ...]] = []
        for layer in range(layers):
            ways = []
            for direction in range(directions):
                index = layer * directions + direction
                own = weights[index * per_direction : (index + 1) * per_direction]
                begin = tuple(part[index] for part in states)
                way, end = _sequence(cell, hidden, begin, _Weights(own, has_biases), backwards=direction == 1)
                ways.append(way)
                ends.append(end)
            hidden = torch.cat(ways, dim=-1) if directions == 2 else ways[0]
            if dropout and training and layer < layers - 1:
                hidden = F.dropout(hidden, dropout, training=True)
        result = hidden if batch_first[0] else hidden.transpose(0, 1)
        return (result, *(torch.stack(parts) for parts in zip(*ends, strict=True)))

    return run


class _Weights(list[Tensor]):
    """Input, recurrent, (both biases,) (projection) of one direction, under names."""

    def __init__(self, given: Sequence[Tensor], has_biases: bool) -> None:
        super().__init__(given)
        self.has_biases = has_biases

    @property
    def recurrent_bias(self) -> Tensor | None:
        return self[3] if self.has_biases else None

    @property
    def projection(self) -> Tensor | None:
        return self[-1] if len(self) in (3, 5) else None


def _sequence(
    cell: Cell, inputs: Tensor, state: tuple[Tensor, ...], weights: _Weights, *, backwards: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All steps of one direction; the products with the inputs are made at once."""
    length = inputs.shape[1]
    if not isinstance(length, int):
        raise ExportError(
            "a recurrent layer over a sequence whose length may change has no gradient",
            hint="name only the batch as dynamic, or pad all sequences to one length",
        )
    fed = F.linear(inputs, weights[0], weights[2] if weights.has_biases else None)
    made: list[Tensor] = []
    for step in reversed(range(length)) if backwards else range(length):
        state = cell(fed[:, step], state, weights)
        made.append(state[0])
    return torch.stack(made[::-1] if backwards else made, dim=1), state


def _product(hidden: Tensor, weights: Any) -> Tensor:
    return F.linear(hidden, weights[1], weights.recurrent_bias)


def _lstm(x: Tensor, state: tuple[Tensor, ...], weights: Any) -> tuple[Tensor, ...]:
    hidden, memory = state
    entering, forgetting, new, leaving = (x + _product(hidden, weights)).chunk(4, dim=-1)
    memory = torch.sigmoid(forgetting) * memory + torch.sigmoid(entering) * torch.tanh(new)
    hidden = torch.sigmoid(leaving) * torch.tanh(memory)
    if weights.projection is not None:
        hidden = F.linear(hidden, weights.projection)
    return hidden, memory


def _gru(x: Tensor, state: tuple[Tensor, ...], weights: Any) -> tuple[Tensor, ...]:
    (hidden,) = state
    x_reset, x_update, x_new = x.chunk(3, dim=-1)
    h_reset, h_update, h_new = _product(hidden, weights).chunk(3, dim=-1)
    new = torch.tanh(x_new + torch.sigmoid(x_reset + h_reset) * h_new)
    update = torch.sigmoid(x_update + h_update)
    return ((1 - update) * new + update * hidden,)
