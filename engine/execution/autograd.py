"""Graph runs as autograd functions, so that everything built on `loss.backward()` works as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fuseline.engine.errors import FuselineError
from fuseline.engine.execution.direct import DirectRunner
from fuseline.engine.parameters import Parameter
from fuseline.engine.training.cut import OWN_LOSS, output_gradient
from fuseline.engine.training.gradients import LOSS_GRADIENT, gradient_name

__all__ = ["Run", "SplitStep", "WholeStep", "gradients_of", "scaled"]


@dataclass
class Run:
    """One forward: its runners, inputs and weights, enough to run it again."""

    runners: Sequence[DirectRunner]
    feeds: Mapping[str, Tensor]
    named: Mapping[str, Tensor]
    #: The parameters that receive a gradient, in the order in which autograd gets them.
    trained: Sequence[Parameter]
    outputs: Sequence[str]
    seed: int | None = None
    #: The model's own factor on the graph's loss.
    factor: float = 1.0
    #: The gradient of the loss that the forward assumes; the backward writes here what really came.
    outer: float = 1.0
    #: A wrong assumption is mended by running again, not by scaling: in half precision it would lose digits.
    exact: bool = False
    #: Outputs that carry new values of buffers, and those values once the forward has run.
    updates: Mapping[str, str] = field(default_factory=dict)
    updated: dict[str, Tensor] = field(default_factory=dict)
    #: Makes the pair (forward, backward) in case a gradient reaches the outputs besides the loss.
    split: Callable[[], Sequence[DirectRunner]] | None = None
    #: Set when that happened: the next step had better be split from the start.
    was_split: bool = False

    def remember(self, results: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Keep the new buffers and give the outputs in order."""
        self.updated = {buffer: results[name] for name, buffer in self.updates.items()}
        return tuple(results[name] for name in self.outputs)

    def forward(self) -> dict[str, Tensor]:
        seeded = {**self.feeds, LOSS_GRADIENT: torch.tensor(self.outer * self.factor)}
        return self.runners[0](seeded, self.named, seed=self.seed)


class WholeStep(torch.autograd.Function):
    """Loss, outputs and gradients in one run; the backward hands the gradients out."""

    @staticmethod
    def forward(ctx: Any, run: Run, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        results = run.forward()
        ctx.run, ctx.gradients = run, gradients_of(run.trained, results)
        loss, *others = run.remember(results)
        return (scaled(loss, run.factor), *others)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        run: Run = ctx.run
        _refuse_second_derivatives()
        if ctx.gradients is None:
            raise FuselineError("the graph of this loss was used up by an earlier backward")
        gradients, ctx.gradients = ctx.gradients, None
        if any(g is not None for g in incoming[1:]):
            return (None, *_through_outputs(run, incoming))
        assumed, run.outer = run.outer, 0.0 if incoming[0] is None else float(incoming[0])
        if run.outer != assumed and (run.exact or not assumed):
            gradients = gradients_of(run.trained, run.forward())
        elif run.outer != assumed:
            for gradient in _distinct(gradients):
                gradient.mul_(run.outer / assumed)
        return (None, *gradients)


class SplitStep(torch.autograd.Function):
    """Forward and backward apart: the gradients of the outputs come from whatever loss torch computed."""

    @staticmethod
    def forward(ctx: Any, run: Run, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        results = _forward(run, run.runners[0])
        ctx.run, ctx.results = run, results
        return tuple(
            scaled(value, run.factor) if name == "loss" else value
            for name, value in zip(run.outputs, run.remember(results), strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        _refuse_second_derivatives()
        if ctx.results is None:
            raise FuselineError("the graph of these outputs was used up by an earlier backward")
        results, ctx.results = ctx.results, None
        return (None, *_backward(ctx.run, ctx.run.runners[1], results, incoming))


def _refuse_second_derivatives() -> None:
    """Gradients are enabled in a backward that is to be differentiated itself, and nowhere else."""
    if torch.is_grad_enabled():
        raise FuselineError(
            "gradients of gradients (create_graph=True) are not in the graph",
            hint="train this model with the stock Trainer",
        )


def _through_outputs(run: Run, incoming: Sequence[Tensor | None]) -> list[Tensor]:
    """The loss was not the only thing used: run again in two parts.

    With dropout the masks are others than the first run's; from the next step on there is one run only.
    """
    assert run.split is not None
    forward, backward = run.split()
    run.was_split = True
    return _backward(run, backward, _forward(run, forward), incoming)


def _forward(run: Run, runner: DirectRunner) -> dict[str, Tensor]:
    results = runner(run.feeds, run.named, seed=run.seed)
    return results | {"loss": results[OWN_LOSS]} if OWN_LOSS in results else results


def _backward(
    run: Run, runner: DirectRunner, results: Mapping[str, Tensor], incoming: Sequence[Tensor | None]
) -> list[Tensor]:
    kept = {name: value for name, value in results.items() if runner.accepts(name)}
    feeds = {**run.feeds, **kept, LOSS_GRADIENT: torch.tensor(1.0)}
    for name, gradient in zip(run.outputs, incoming, strict=True):
        factor = run.factor if name == "loss" else 1.0
        given = torch.zeros_like(results[name]) if gradient is None else gradient * factor
        feeds[output_gradient(name)] = given
    return gradients_of(run.trained, runner(feeds, run.named, seed=run.seed))


def scaled(loss: Tensor, factor: float) -> Tensor:
    """The mean over labels times their share; without any label, the mean is no number and the sum is 0."""
    return loss * factor if factor else torch.zeros_like(loss)


def gradients_of(trained: Sequence[Parameter], results: Mapping[str, Tensor]) -> list[Tensor]:
    return [p.gradient_from_graph(results[gradient_name(p.value or "")]) for p in trained]


def _distinct(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Each piece of memory once: parts of a packed gradient are disjoint views, tied ones are the same."""
    found = {(g.data_ptr(), g.shape): g for g in gradients}
    return list(found.values())
