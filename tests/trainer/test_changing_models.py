"""A model that is not what it was when its graph was made, against the stock Trainer: in both modes."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from trainer_harness import arguments, recording, rows
from trainer_nets import MODES, SLOW_MODES, Meddling, Net, points, seeded, used

from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer

# -- modules that are held and no part of the model


class Taught(Net):
    """Reads a module that its list hides from `parameters()`."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__(lambda net, hidden: hidden * torch.sigmoid(net.teacher[0](hidden)).detach())
        self.teacher = [nn.Linear(6, 6)]
        self.teacher[0].weight.data.mul_(factor)


def moving_teacher(model: Any, optimizer: Any) -> None:
    for weight, mine in zip(model.teacher[0].parameters(), model.first.parameters(), strict=True):
        weight.data.mul_(0.5).add_(mine.data)


def another_teacher(model: Any, optimizer: Any) -> None:
    model.teacher[0] = copy.deepcopy(model.first)


@MODES
@pytest.mark.parametrize("how", [moving_teacher, another_teacher])
def test_the_weights_of_a_hidden_module_are_followed(how: Any, folder: Path, whole_step: bool) -> None:
    def use(trainer: Any) -> None:
        trainer.add_callback(Meddling(how))
        trainer.train()

    assert used(seeded(kind=Taught), folder, whole_step, use).report().in_torch == 0


@MODES
def test_a_graph_is_not_that_of_another_hidden_module(folder: Path, whole_step: bool) -> None:
    for factor in (1.0, 5.0):
        used(seeded(factor, kind=Taught), folder, whole_step, lambda trainer: trainer.train())


@MODES
def test_a_hidden_module_may_share_weights(folder: Path, whole_step: bool) -> None:
    """What is the model's own trains as such, and changes no graph."""

    def wrapped(net: Net, hidden: Tensor) -> Tensor:
        return hidden + net.also[0](hidden)

    model = seeded(wrapped)
    model.also = [nn.Sequential(model.first, nn.Tanh())]
    mine = used(model, folder, whole_step, lambda trainer: trainer.train())
    assert mine.report().in_torch == 0
    assert mine.compiler.counts["exports"] <= 1


# -- a model that changes


def grown(trainer: Any) -> None:
    """Another layer takes the place of one, with one more unit behind it."""
    trainer.train()
    torch.manual_seed(9)
    trainer.model.first, trainer.model.second = nn.Linear(6, 7), nn.Linear(7, 3)
    trainer.optimizer = trainer.lr_scheduler = None
    trainer.train()


def replaced(trainer: Any) -> None:
    """A layer of the same shape takes the place of one."""
    trainer.train()
    torch.manual_seed(9)
    trainer.model.second = nn.Linear(6, 3)
    trainer.optimizer = trainer.lr_scheduler = None
    trainer.train()


def replaced_on_the_way(trainer: Any) -> None:
    """The same while it trains: nobody tells the optimizer, which goes on with the old layer."""

    class Replace(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            if state.global_step == 2:
                torch.manual_seed(9)
                model.second = nn.Linear(6, 3)

    trainer.add_callback(Replace())
    trainer.train()


def unfrozen(trainer: Any) -> None:
    trainer.model.first.requires_grad_(False)
    trainer.train()
    trainer.model.first.requires_grad_(True)
    trainer.optimizer = trainer.lr_scheduler = None
    trainer.train()


def hotter(trainer: Any) -> None:
    """What the forward reads is exchanged, not the module."""
    trainer.train()
    trainer.model.between = lambda net, hidden: 5 * hidden
    trainer.train()


@SLOW_MODES
@pytest.mark.parametrize("use", [grown, replaced, replaced_on_the_way, unfrozen, hotter])
def test_a_model_that_changes_between_trainings(
    use: Callable[[Any], None], folder: Path, whole_step: bool
) -> None:
    trainer = used(seeded(), folder, whole_step, use)
    assert trainer.report().in_torch == 0


class Settled(Net):
    """Reads settings that are no attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scales, self.options = [1.0, 2.0], types.SimpleNamespace(shift=0.0)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.second(self.scales[1] * self.first(x) + self.options.shift)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Shift:
    __slots__ = ("by",)

    def __init__(self) -> None:
        self.by = 0.0


class Annealed(Net):
    """The same by a tensor that is no buffer, an array, slots and an attribute of the class."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.warmth, self.scales, self.shift = torch.ones(1), np.ones(1, np.float32), Shift()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        hidden = self.first(x) * self.warmth * float(self.scales[0]) * self.factor
        logits = self.second(hidden + self.shift.by)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Anneal(transformers.TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == 1:
            model.warmth.fill_(2.0)
        if state.global_step == 2:
            model.scales[0] = 3.0
        if state.global_step == 3:
            model.shift.by = 4.0
        type(model).factor = 0.5 if state.global_step == 4 else 1.0


class Unsettle(transformers.TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == 1:
            model.scales[1] = 0.5
        if state.global_step == 2:
            model.options.shift = 3.0


@MODES
@pytest.mark.parametrize(("kind", "unsettle"), [(Settled, Unsettle), (Annealed, Anneal)])
def test_settings_that_are_changed_where_they_are(
    kind: type[Net], unsettle: type[transformers.TrainerCallback], folder: Path, whole_step: bool
) -> None:
    def use(trainer: Any) -> None:
        trainer.add_callback(unsettle())
        trainer.train()

    trainer = used(seeded(kind=kind), folder, whole_step, use, max_steps=6)
    assert trainer.report().in_torch == 0


@pytest.mark.slow
@MODES
def test_embeddings_that_were_resized(folder: Path, whole_step: bool) -> None:
    model = zoo.build("gpt2", num_hidden_layers=1)
    losses = []
    for kind, chosen in ((transformers.Trainer, {}), (Trainer, {"whole_step": whole_step})):
        held = copy.deepcopy(model)
        trainer = recording(kind)(
            held, arguments(folder, max_steps=2), train_dataset=rows(model, 8), **chosen
        )
        trainer.train()
        torch.manual_seed(0)
        held.resize_token_embeddings(held.config.vocab_size + 5, mean_resizing=False)
        trainer.optimizer = trainer.lr_scheduler = None
        trainer.train()
        losses.append(trainer.record.losses)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert trainer.report().in_torch == 0


# -- which model


@MODES
def test_another_model_given_to_the_trainer_is_on_the_graph(folder: Path, whole_step: bool) -> None:
    def use(trainer: Any) -> None:
        trainer.train()
        torch.manual_seed(4)
        trainer.model = trainer.model_wrapped = Net()
        trainer.optimizer = trainer.lr_scheduler = None
        trainer.train()

    trainer = used(seeded(), folder, whole_step, use)
    assert trainer.report().in_torch == 0


def test_gradients_in_evaluation_mode_are_torchs_and_that_is_said(folder: Path, caplog: Any) -> None:
    data = points()
    trainer = Trainer(seeded(), arguments(folder, max_steps=1), train_dataset=data)
    batch = {name: tensor[:4] for name, tensor in data.batch.items()}
    trainer.model.eval()
    trainer.model(**batch)["loss"].backward()
    assert [m for m in caplog.messages if "in evaluation mode with gradients" in m]
    assert any("in evaluation mode with gradients" in reason for reason in trainer.report().reasons)
