"""A module whose signature is exactly the graph's inputs and whose result is exactly its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.exporters.errors import ExportError
from fuseline.exporters.results import flatten, loss_in, numbers_in

__all__ = ["UPDATED", "Loss", "ModelWrapper", "Wrapper"]

#: Ends the names of outputs that hold the new value of a buffer.
UPDATED = ".updated"

#: A user's loss: called with the model's output and, by name, the inputs that the model does not take.
Loss = Callable[..., Tensor]


class _Seen:
    """What a call saw. Not on the module itself: torch.export puts a module's own attributes back."""

    names: list[str] = []
    numbers: tuple[str, ...] = ()


class Wrapper(nn.Module):
    """A model behind positional inputs with names; a subclass says what is computed from them."""

    def __init__(self, model: nn.Module, inputs: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.input_names = list(inputs)
        #: Buffers that a call moves: a graph cannot keep them, so their new values are results as well.
        self.moving: tuple[str, ...] = ()
        self._seen = _Seen()

    @property
    def output_names(self) -> list[str]:
        """The names of what the last call returned."""
        return self._seen.names

    @property
    def numbers(self) -> tuple[str, ...]:
        """What the last call returned besides tensors that depends on what it was given."""
        return self._seen.numbers

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        named = self.compute(dict(zip(self.input_names, values, strict=True)))
        buffers = dict(self.model.named_buffers()) if self.moving else {}
        named |= {name + UPDATED: buffers[name].clone() for name in self.moving}
        self._seen.names = list(named)
        return tuple(named.values())

    def compute(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs by name, in their order."""
        raise NotImplementedError


class ModelWrapper(Wrapper):
    """Calls the model with named inputs and returns the loss (if any) and the wanted outputs in order.

    Without any that are wanted by name, every tensor that the model returns is.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        arguments: Mapping[str, Any] | None = None,
        loss_inputs: Sequence[str] = (),
        loss: Loss | None = None,
        with_loss: bool = False,
        train: bool = False,
    ) -> None:
        super().__init__(model, inputs)
        self.wanted = list(outputs)
        self.arguments = dict(arguments or {})
        self.loss_inputs = frozenset(loss_inputs)
        self.user_loss = loss
        self.with_loss = with_loss
        self.train_mode = train

    def compute(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        passed = {name: value for name, value in given.items() if name not in self.loss_inputs}
        if self.train_mode:
            passed = {n: _counted_from_zero(v) if n.endswith("input_ids") else v for n, v in passed.items()}
        result = self.model(**passed, **self.arguments)
        self._seen.numbers = numbers_in(result)
        if not self.with_loss:
            return self._select(result, given)
        loss = self._loss(result, given)
        others = {n: v for n, v in self._select(result, given).items() if v is not loss}
        # A few models give one element in a row.
        return {"loss": loss if loss.dim() == 0 else loss.reshape(()), **others}

    def _loss(self, result: Any, given: Mapping[str, Tensor]) -> Tensor:
        """The user's loss, or what the model itself returns as one."""
        if self.user_loss is not None:
            return self.user_loss(result, **{name: given[name] for name in self.loss_inputs})
        found = loss_in(result)
        if found is not None:
            return found
        raise ExportError(
            f"{type(self.model).__name__} returned no loss",
            hint="give a loss: a callable (output, **labels) -> scalar",
        )

    def _select(self, result: Any, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if "sentence_embedding" in self.wanted:
            return {"sentence_embedding": _pool(result.last_hidden_state, given)}
        if not isinstance(result, (Tensor, Mapping, tuple, list)):
            raise ExportError(
                f"{type(self.model).__name__} returned {type(result).__name__}, "
                "which is no tensor, tuple or dict"
            )
        if self.wanted and isinstance(result, Mapping):
            found = {name: result.get(name) for name in self.wanted}
            return {name: value for name, value in found.items() if isinstance(value, Tensor)}
        return _distinct(flatten(result), given)


def _distinct(outputs: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A graph's outputs are values of their own: what comes twice, or came in, goes out as a copy."""
    seen = {id(value) for value in given.values()}
    found = {}
    for name, value in outputs.items():
        found[name] = value.clone() if id(value) in seen else value
        seen.add(id(value))
    return found


def _counted_from_zero(ids: Tensor) -> Tensor:
    """Token ids of which a negative one is out of range, as for torch; ONNX would count from the end."""
    return ids if ids.is_floating_point() else torch.where(ids < 0, torch.iinfo(ids.dtype).max, ids)


def _pool(hidden: Tensor, given: Mapping[str, Tensor]) -> Tensor:
    """The mean over the tokens that the mask keeps, as a unit vector."""
    mask = given["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1e-9)
    return torch.nn.functional.normalize(mean, dim=-1)
