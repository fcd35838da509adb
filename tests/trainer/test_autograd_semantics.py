"""What autograd is told outside the operators: detached parts, hooks, own backwards; in both modes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from trainer_harness import arguments, assert_same, both
from trainer_nets import MODES, Meddling, Net, hooked_tensor, on_graph, points, seeded, used


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(4 * x) / 4

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return 0.5 * gradient


def without_gradient(net: Net, hidden: Tensor) -> Tensor:
    with torch.no_grad():
        scale = hidden.abs().amax(dim=1, keepdim=True)
    return hidden / scale


class ByItsSign(torch.autograd.Function):
    """A weight follows the sign of its gradient, which no graph of derivatives knows of."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        return gradient * weight, (gradient * x).sum(0).sign()


class Signed(Net):
    def __init__(self) -> None:
        super().__init__(lambda net, hidden: ByItsSign.apply(hidden, net.scale))
        self.scale = nn.Parameter(torch.full((6,), 0.7))


BETWEEN: dict[str, Callable[[Net, Tensor], Tensor]] = {
    "probe": lambda net, hidden: hidden.detach(),
    "no_grad": without_gradient,
    "own backward": lambda net, hidden: Rounded.apply(hidden),
}


@MODES
@pytest.mark.parametrize("name", BETWEEN)
def test_what_autograd_is_told_holds(name: str, folder: Path, whole_step: bool) -> None:
    stock, mine = both(
        seeded(BETWEEN[name]),
        arguments(folder, max_steps=3, weight_decay=0.0),
        points(),
        ours={"whole_step": whole_step, "cache_dir": "off"},
    )
    assert_same(stock, mine, relative=1e-5, absolute=2e-5)
    assert on_graph(mine)


@MODES
def test_a_gradient_that_the_graph_lacks_is_missed(folder: Path, whole_step: bool) -> None:
    ours = {"whole_step": whole_step, "fallback": "torch", "cache_dir": "off", "check": True}
    stock, mine = both(seeded(kind=Signed), arguments(folder, max_steps=2), points(), ours=ours)
    assert_same(stock, mine, relative=0, absolute=0)
    assert any("scale by" in reason for reason in mine.trainer.report().reasons)


def backward_hook(net: Net) -> Net:
    net.first.register_full_backward_hook(lambda module, inputs, outputs: (None,))
    return net


@pytest.mark.slow
@MODES
@pytest.mark.parametrize("model", [lambda: seeded(hooked_tensor), lambda: backward_hook(seeded())])
def test_hooks_run_or_the_run_is_torchs(model: Callable[[], Net], folder: Path, whole_step: bool) -> None:
    ours = {"whole_step": whole_step, "fallback": "torch", "cache_dir": "off"}
    stock, mine = both(model(), arguments(folder, max_steps=3), points(), ours=ours)
    assert_same(stock, mine, relative=0, absolute=0)
    report = mine.trainer.report()
    assert report.on_graph == 0
    assert any("hook" in reason for reason in report.reasons)


def doubled_forward(model: Any, optimizer: Any) -> None:
    model.first.register_forward_hook(lambda module, inputs, output: 2 * output)


def doubled_backward(model: Any, optimizer: Any) -> None:
    model.second.register_full_backward_pre_hook(lambda module, outputs: tuple(2 * o for o in outputs))


@MODES
@pytest.mark.parametrize("how", [doubled_forward, doubled_backward])
def test_hooks_that_come_when_the_graph_is_made(how: Any, folder: Path, whole_step: bool) -> None:
    def use(trainer: Any) -> None:
        trainer.add_callback(Meddling(how))
        trainer.train()

    report = used(seeded(), folder, whole_step, use).report()
    assert report.in_torch == 3
    assert any("hook" in reason for reason in report.reasons)


def exchanged(model: Any, optimizer: Any) -> None:
    model.second = copy.deepcopy(model.second)
    optimizer.param_groups[0]["params"] += model.second.parameters()


@MODES
def test_parameters_that_the_optimizer_gets_later(folder: Path, whole_step: bool) -> None:
    def use(trainer: Any) -> None:
        trainer.add_callback(Meddling(exchanged))
        trainer.train()

    used(seeded(), folder, whole_step, use)


class Forgetting(transformers.TrainerCallback):
    """Throws away what was gathered of the gradients of a step."""

    def on_substep_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == 1:
            model.zero_grad()


@MODES
def test_gradients_that_are_dropped_between_micro_batches(folder: Path, whole_step: bool) -> None:
    def use(trainer: Any) -> None:
        trainer.add_callback(Forgetting())
        trainer.train()

    used(seeded(), folder, whole_step, use, gradient_accumulation_steps=2, per_device_train_batch_size=2)
