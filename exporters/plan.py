"""The plan of an export: a module to trace, its inputs, the batches to trace and to check with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fuseline.exporters.errors import ExportError
from fuseline.exporters.families import Family
from fuseline.exporters.inputs import Input, Padding
from fuseline.exporters.layerdrop import check_dropped_layers
from fuseline.exporters.patches import traceable, without_dropout
from fuseline.exporters.sources import is_transformers
from fuseline.exporters.swapping import swapped
from fuseline.exporters.wrapper import Wrapper

__all__ = ["CASES", "EXAMPLE_SIZES", "Case", "Plan", "configured", "settings_of"]

#: (batch, sequence): nothing is 1 and nothing equals anything else, so that no axis is specialised.
EXAMPLE_SIZES = (3, 7)
Sizes = tuple[int, ...]


class Case(NamedTuple):
    """A batch that a check runs: its sizes, and the side on which its shorter rows are padded."""

    sizes: Sizes
    padding: Padding

    @property
    def seed(self) -> int:
        return sum(self.sizes)


#: Each differs from the example in every axis, one has batch 1; rows are padded left, right and not at all.
CASES = (Case((1, 12), "none"), Case((4, 9), "right"), Case((2, 6), "left"))


@dataclass
class Plan:
    """Everything that tracing and checking need to know."""

    wrapper: Wrapper
    inputs: tuple[Input, ...]
    family: Family
    train: bool
    make_batch: Callable[[Case, int], dict[str, Tensor]]
    example_sizes: Sizes = EXAMPLE_SIZES
    cases: tuple[Case, ...] = CASES
    #: What torch computes, where that is not what is traced.
    reference: Wrapper | None = None

    @property
    def model(self) -> nn.Module:
        return self.wrapper.model

    def example(self) -> list[Tensor]:
        """The batch that is traced."""
        return self._ordered(self.make_batch(Case(self.example_sizes, "right"), 0))

    def checked(self) -> Iterator[list[Tensor]]:
        """The batches that a check runs; where nothing may change there is one."""
        cases = self.cases if any(item.dynamic for item in self.inputs) else self.cases[:1]
        for case in cases:
            yield self._ordered(self.make_batch(case, case.seed))

    def _ordered(self, made: Mapping[str, Tensor]) -> list[Tensor]:
        return [made[item.name] for item in self.inputs]

    def __post_init__(self) -> None:
        moving = self._moving_buffers() if self.train else ()
        for wrapper in (self.wrapper, self.reference):
            if wrapper is not None:
                wrapper.moving = moving

    def _moving_buffers(self) -> tuple[str, ...]:
        """The buffers that one call moves: running statistics, spectral norm's vectors, an average."""
        if not any(True for _ in self.model.buffers()):
            return ()
        with torch.no_grad(), self.as_torch_runs():
            before = {
                name: (value, value.clone(), value._version) for name, value in self.model.named_buffers()
            }
            self._outputs(self.example())
            after = dict(self.model.named_buffers())
            replaced = [name for name, (value, _, _) in before.items() if after.get(name) is not value]
            # Not every operator of torch counts what it writes, and not all that is written differs.
            moved = [
                name
                for name, (value, old, version) in before.items()
                if value._version != version or not torch.equal(value, old)
            ]
        if replaced:
            raise ExportError(
                f"{type(self.model).__name__} puts a new tensor in place of its buffer {replaced[0]}",
                hint="write into the buffer instead: buffer.copy_(new)",
            )
        return tuple(moved)

    def notes(self) -> list[str]:
        """What the graph does not do although the model, trained by torch, would."""
        config = getattr(self.model, "config", None)
        if not self.train or config is None:
            return []
        off = [name for name, value in self.family.disabled.items() if getattr(config, name, value) != value]
        return [f"{name}: switched off, it draws on the host" for name in off]

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """The model in the mode and form in which it is traced; undone afterwards."""
        with ExitStack() as stack:
            stack.enter_context(self._mode())
            stack.enter_context(traceable(self.model))
            stack.enter_context(
                configured(self.model, {**_traceable_settings(self.model), **self.family.settings})
            )
            for patch in self.family.patches(self.model, train=self.train):
                stack.enter_context(patch)
            yield
        if self.train:
            with torch.no_grad(), self.as_torch_runs():
                check_dropped_layers(self.model, lambda: self._outputs(self.example()))

    def expected(self, batch: list[Tensor]) -> dict[str, Tensor]:
        """What torch itself gives, unpatched, but without what is random."""
        with torch.no_grad(), self.as_torch_runs():
            return self._outputs(batch)

    def expected_gradients(self, batch: list[Tensor]) -> dict[str, Tensor]:
        """Torch's gradients of the loss by parameter name; zero where the loss does not depend on it."""
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        with self.as_torch_runs():
            loss = self._outputs(batch)["loss"]
            found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        pairs = zip(trained.items(), found, strict=True)
        return {name: torch.zeros_like(p) if g is None else g for (name, p), g in pairs}

    def _outputs(self, batch: list[Tensor]) -> dict[str, Tensor]:
        wrapper = self.reference or self.wrapper
        values = wrapper(*[value.clone() for value in batch])
        return dict(zip(wrapper.output_names, values, strict=True))

    @contextmanager
    def as_torch_runs(self) -> Iterator[None]:
        """Buffers move inside, and random numbers are drawn; afterwards all is as it was."""
        buffers = [(value, value.clone()) for value in self.model.buffers()]
        try:
            with self._mode(), without_dropout(self.model), torch.random.fork_rng(devices=[]):
                yield
        finally:
            with torch.no_grad():
                for value, before in buffers:
                    value.copy_(before)

    @contextmanager
    def _mode(self) -> Iterator[None]:
        """The mode in which the model is traced; parts that are in another one (`norm.eval()`) stay so."""
        modes = [(module, module.training) for module in self.model.modules()]
        with configured(self.model, {**settings_of(self.model, self.train), **self.family.disabled}):
            if self.model.training != self.train:
                self.model.train(self.train)
            try:
                yield
            finally:
                for module, training in modes:
                    module.training = training


@contextmanager
def configured(module: nn.Module, settings: Mapping[str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in settings.items():
            stack.enter_context(swapped(module.config, name, value))
        yield


def settings_of(module: nn.Module, train: bool) -> dict[str, Any]:
    """Settings of a transformers config that must hold while the model is traced."""
    config: Any = getattr(module, "config", None)
    if not is_transformers(module) or not hasattr(config, "problem_type"):
        return {}
    settings: dict[str, Any] = {"use_cache": False}
    if train and config.problem_type is None and "Classification" in type(module).__name__:
        # Left open, the model would look at the labels' type, and some at their content.
        one = config.num_labels == 1
        settings["problem_type"] = "regression" if one else "single_label_classification"
    return settings


def _traceable_settings(module: nn.Module) -> dict[str, Any]:
    """All experts of a mixture in one batched product: where a token goes is data, and no loop follows it."""
    if is_transformers(module) and hasattr(module.config, "_experts_implementation"):
        return {"_experts_implementation": "batched_mm"}
    return {}
