"""A forward that does more than compute, and gradients that someone else wants: as in the stock Trainer."""

from __future__ import annotations

import random
import types
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from trainer_harness import arguments, assert_same, both
from trainer_nets import MODES, Net, points, seeded, used

from fuseline.engine.errors import FuselineError
from fuseline.tools.trainer import Compiler, Settings, Trainer, attach


class Counting(Net):
    """Cools down with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        self.calls += 1
        return super().forward(x / self.calls, labels)


class CountingInTraining(Counting):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        self.calls += self.training
        return Net.forward(self, x / (1 + self.calls), labels)


class Collecting(Net):
    """The same by a list that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        self.seen.append(len(x))
        return super().forward(x / len(self.seen), labels)


class Held:
    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class Writing(Net):
    """The same by numbers that are no buffer, and by an object without a dict."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        made: dict[str, Any] = {
            "Tensor": torch.zeros(1),
            "ndarray": np.zeros(1),
            "slot": Held(),
            "deque": deque(),
        }
        self.held = made[kind]

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        if isinstance(self.held, Held):
            self.held.calls += 1
            return super().forward(x / self.held.calls, labels)
        if isinstance(self.held, deque):
            self.held.append(1)
            return super().forward(x / len(self.held), labels)
        self.held += 1
        return super().forward(x / float(self.held[0]), labels)


class Remembering(Net):
    """Adds what the call before it computed."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        last, self.last = self.last, x.detach().mean(dim=0)
        return super().forward(x if last is None else x + last, labels)


class Tossing(Net):
    """A coin of the host."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return super().forward(-x if random.random() < 0.5 else x, labels)


class Throwing(Net):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return super().forward(x * float(np.random.rand()) if self.training else x, labels)


class Replacing(Net):
    """Puts another buffer in the place of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(dim=0)
        return super().forward(x - self.mean, labels)


class Initialized(Net):
    """Takes a scale from its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        if not self.ready:
            self.scale.copy_(x.detach().std(dim=0))
            self.ready = True
        return super().forward(x / self.scale, labels)


class Clipping(Net):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        self.first.weight.data.clamp_(-0.2, 0.2)
        return super().forward(x, labels)


CALLS = [0]


class CountingOutside(Net):
    """Cools down by a global."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        CALLS[0] += 1
        return super().forward(x if CALLS[0] < 100 else 2 * x, labels)


@MODES
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Replacing, "in place of its buffer mean"),
        (Initialized, "settles the buffer 'scale'"),
        (Clipping, "writes into the weight 'first.weight'"),
        (CountingOutside, "changes a global"),
        (Counting, "changes the attribute 'calls'"),
        (CountingInTraining, "changes the attribute 'calls'"),
        (Collecting, "changes a list"),
        (Remembering, "changes the attribute 'last'"),
        (Tossing, "Python's module 'random'"),
        (Throwing, "numpy.random"),
    ],
)
def test_a_forward_with_effects_is_torchs(
    kind: type[Net], reason: str, folder: Path, whole_step: bool
) -> None:
    ours = {"whole_step": whole_step, "fallback": "torch", "cache_dir": "off"}
    stock, mine = both(seeded(kind=kind), arguments(folder, max_steps=4), points(), ours=ours)
    assert_same(stock, mine, relative=0, absolute=0)
    assert any(reason in told for told in mine.trainer.report().reasons)
    assert getattr(mine.trainer.model, "calls", 4) == 4, "trying must leave no trace"


@pytest.mark.parametrize("kind", ["Tensor", "ndarray", "slot", "deque"])
def test_a_forward_that_writes_into_what_a_model_holds_is_torchs(kind: str, folder: Path) -> None:
    model, data = Writing(kind), points()
    ours = {"fallback": "torch", "cache_dir": "off"}
    stock, mine = both(model, arguments(folder, max_steps=3), data, ours=ours)
    assert_same(stock, mine, relative=0, absolute=0)
    assert any(kind in told for told in mine.trainer.report().reasons)


class Centering(Net):
    """Takes off a mean that every call moves, in evaluation as well."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(dim=0))
        return super().forward(x - self.mean, labels)


@MODES
def test_trying_leaves_the_buffers_that_a_call_moves(folder: Path, whole_step: bool) -> None:
    ours = {"whole_step": whole_step, "fallback": "torch"}
    stock, mine = both(seeded(kind=Centering), arguments(folder, max_steps=3), points(), ours=ours)
    assert_same(stock, mine, relative=1e-5, absolute=2e-5)
    assert mine.trainer.report().in_torch == 0
    torch.testing.assert_close(mine.trainer.model.mean, stock.trainer.model.mean)


class Settling(Net):
    """What the first call finds out stays."""

    def __init__(self) -> None:
        super().__init__()
        self.width: int | None = None

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        if self.width is None:
            self.width = x.shape[1]
        return super().forward(x / self.width, labels)


def test_what_a_first_call_settles_is_no_effect(folder: Path) -> None:
    stock, mine = both(seeded(kind=Settling), arguments(folder, max_steps=3), points())
    assert_same(stock, mine, relative=1e-5, absolute=2e-5)
    assert mine.trainer.report().in_torch == 0


@MODES
@pytest.mark.parametrize("training", [False, True])
def test_compiling_leaves_every_part_in_its_mode(training: bool, folder: Path, whole_step: bool) -> None:
    model = seeded(lambda net, hidden: F.dropout(hidden, 0.1, net.training)).train(training)
    trainer = Trainer(
        model, arguments(folder, max_steps=1), train_dataset=points(), whole_step=whole_step, cache_dir="off"
    )
    trainer.compile({name: tensor[:4] for name, tensor in points().batch.items()})
    assert trainer.compiler.counts["exports"] == 1
    assert {module.training for module in model.modules()} == {training}


# -- gradients that someone else wants


def adversarial(kind: type[Any]) -> type[Any]:
    """Trains on inputs that were moved along their own gradient."""

    class Adversarial(kind):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
            x = inputs["x"].clone().requires_grad_()
            loss = model(x=x, labels=inputs["labels"])["loss"]
            (gradient,) = torch.autograd.grad(loss, x, retain_graph=True)
            moved = (x + 0.1 * gradient.sign()).detach()
            total: Tensor = loss + model(x=moved, labels=inputs["labels"])["loss"]
            return total

    return Adversarial


def scaling(kind: type[Any]) -> type[Any]:
    """Changes the gradients behind the backward."""

    class Scaling(kind):  # type: ignore[misc]
        def training_step(self, model: Any, *args: Any, **kwargs: Any) -> Tensor:
            loss: Tensor = super().training_step(model, *args, **kwargs)
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(0.1)
            return loss

    return Scaling


def under_another(kind: type[Any]) -> type[Any]:
    """The same in a comprehension, below a class that looks at none."""

    class Scaling(kind):  # type: ignore[misc]
        def training_step(self, model: Any, *args: Any, **kwargs: Any) -> Tensor:
            loss: Tensor = super().training_step(model, *args, **kwargs)
            [p.grad.mul_(0.1) for p in model.parameters()]
            return loss

    class Above(Scaling):
        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            loss: Tensor = super().training_step(*args, **kwargs)
            return loss

    return Above


@MODES
@pytest.mark.parametrize("wrapped", [adversarial, scaling, under_another])
def test_gradients_are_there_for_whoever_wants_them(
    wrapped: Callable[[type[Any]], type[Any]], folder: Path, whole_step: bool
) -> None:
    weights = []
    for kind, chosen in ((transformers.Trainer, {}), (Trainer, {"whole_step": whole_step})):
        model = seeded()
        # Without an update that divides by their size, gradients of another scale show.
        args = arguments(folder, max_steps=3, max_grad_norm=1e-2, learning_rate=1e-2)
        wrapped(kind)(model, args, train_dataset=points(), **chosen).train()
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-4, atol=2e-5)


class Norms(transformers.TrainerCallback):
    """Reads gradients once the optimizer is done with them."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kw: Any) -> None:
        self.seen += [float(p.grad.norm()) for p in model.parameters()]


@MODES
def test_gradients_are_there_behind_the_update(folder: Path, whole_step: bool) -> None:
    found = []
    for kind, chosen in ((transformers.Trainer, {}), (Trainer, {"whole_step": whole_step})):
        norms = Norms()
        args = arguments(folder, max_steps=3)
        kind(seeded(), args, train_dataset=points(), callbacks=[norms], **chosen).train()
        found.append(norms.seen)
    assert len(found[0]) == 12
    assert found[1] == pytest.approx(found[0], rel=1e-3, abs=1e-6)


def test_gradients_of_gradients_are_refused() -> None:
    model = seeded().train()
    attach(model, Compiler(Settings()))
    batch = {name: tensor[:4] for name, tensor in points().batch.items()}
    loss = model(**batch)["loss"]
    with pytest.raises(FuselineError, match="gradients of gradients"):
        torch.autograd.grad(loss, model.first.weight, create_graph=True)


# -- what the optimizer in the graph meets on the way


class Growing(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Rows of every batch are as long as each other, and no two batches alike."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(2 + index // 4, 6, generator=generator)
        return {"x": x, "labels": torch.tensor(index % 3)}


class Averaging(Net):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return super().forward(x.mean(dim=1), labels)


@MODES
def test_sizes_that_change_between_the_parts_of_a_step(folder: Path, whole_step: bool) -> None:
    """Another size is another graph, and the gradients gathered so far are the old one's."""
    weights = []
    for kind, chosen in ((transformers.Trainer, {}), (Trainer, {"whole_step": whole_step})):
        model = seeded(kind=Averaging)
        settings = {"max_steps": 2, "gradient_accumulation_steps": 2, "learning_rate": 1e-2}
        args = arguments(folder, train_sampling_strategy="sequential", **settings)
        trainer = kind(model, args, train_dataset=Growing(), **chosen)
        trainer.train()
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-4, atol=2e-5)
    assert trainer.report().in_torch == 0


@MODES
def test_weights_that_are_laid_out_otherwise(folder: Path, whole_step: bool) -> None:
    class Turn(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kw: Any) -> None:
            if state.global_step == 2:
                model.first.weight.data = model.first.weight.data.t().contiguous().t()

    def use(trainer: Any) -> None:
        trainer.add_callback(Turn())
        trainer.train()

    # Torch's fused update pairs weights and moments by their place in memory, whatever their layout.
    trainer = used(seeded(), folder, whole_step, use, optim="adamw_torch")
    assert trainer.report().in_torch == 0


@MODES
def test_a_label_out_of_range_is_the_stock_error(folder: Path, whole_step: bool) -> None:
    data = points()
    data.batch["labels"][5] = 7
    for kind, chosen in ((transformers.Trainer, {}), (Trainer, {"whole_step": whole_step})):
        with pytest.raises(IndexError, match="Target 7 is out of bounds"):
            kind(seeded(), arguments(folder, max_steps=4), train_dataset=data, **chosen).train()


class Centring(Net):
    """A buffer that is moved by hand, called like the operator that moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return super().forward(x - self.mean, labels)


@MODES
def test_a_buffer_named_like_an_operator(folder: Path, whole_step: bool) -> None:
    ours = {"whole_step": whole_step, "fallback": "torch", "cache_dir": "off"}
    stock, mine = both(seeded(kind=Centring), arguments(folder, max_steps=4), points(), ours=ours)
    assert_same(stock, mine, relative=1e-5, absolute=2e-5)
    assert mine.trainer.report().in_torch == 0
    torch.testing.assert_close(mine.trainer.model.mean, stock.trainer.model.mean)


# -- another forward


class Replacing(transformers.TrainerCallback):
    """Gives the model, or its class, another forward on the way."""

    def __init__(self, whose: Callable[[Any], Any]) -> None:
        self.whose = whose

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kw: Any) -> None:
        if state.global_step == 2:
            holder = self.whose(model)
            holder.forward = cooler if isinstance(holder, type) else types.MethodType(cooler, model)


def cooler(self: Net, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
    return Net.forward(self, 0.1 * x, labels)


@MODES
@pytest.mark.parametrize("whose", [lambda model: model, type], ids=["instance", "class"])
def test_another_forward_is_the_one_that_runs(
    whose: Callable[[Any], Any], folder: Path, whole_step: bool
) -> None:
    def use(trainer: Any) -> None:
        # A class of its own each time, which may keep what is done to it.
        trainer.model.__class__ = type("Mine", (Net,), {})
        trainer.add_callback(Replacing(whose))
        trainer.train()

    used(seeded(), folder, whole_step, use)
