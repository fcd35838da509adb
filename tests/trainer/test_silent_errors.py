"""What the graph might get wrong without a word, against the stock Trainer: in both modes.

The cases are plain modules as far as it goes, since those compile quickly; `make test-slow` has the rest.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from trainer_harness import arguments, assert_same, both, rows, train
from trainer_nets import MODES, Net, hooked_tensor, on_graph, points, seeded, used

from fuseline.tools.campaigns import zoo
from fuseline.tools.campaigns.rows import Rows
from fuseline.tools.trainer import Compiler, Settings, Trainer, attach

# -- padding


@pytest.mark.slow
@MODES
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_rows_that_begin_with_padding(name: str, folder: Path, whole_step: bool) -> None:
    model = zoo.build(name, num_hidden_layers=1)
    model.set_attn_implementation("sdpa")
    data = rows(model, 8)
    mask = torch.ones_like(data.batch["attention_mask"])
    mask[::2, :3] = 0
    data.batch["attention_mask"] = mask
    data.batch["labels"] = data.batch["labels"].masked_fill(mask == 0, -100)
    stock, mine = both(model, arguments(folder, max_steps=3), data, ours={"whole_step": whole_step})
    assert_same(stock, mine, relative=1e-5, absolute=5e-5)
    assert on_graph(mine)


# -- parts that are more than layers


class Odd(Net):
    """A scalar weight, a norm over the batch that is frozen, and spectral norm."""

    def __init__(self) -> None:
        super().__init__()
        # A bias in front of a norm over the batch has no effect: its gradient is rounding alone.
        self.first = nn.Linear(6, 6, bias=False)
        self.temperature = nn.Parameter(torch.tensor(1.5))
        self.norm = nn.BatchNorm1d(6)
        nn.utils.parametrizations.spectral_norm(self.second)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.second(self.norm(self.first(x))) * self.temperature
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


@MODES
def test_scalars_norms_and_buffers_that_move(folder: Path, whole_step: bool) -> None:
    """Spectral norm moves its buffers, and so keeps the optimizer out of the graph, which is said."""
    ours = {"whole_step": whole_step, "fallback": "torch"}
    stock, mine = both(seeded(kind=Odd), arguments(folder, max_steps=4), points(), ours=ours)
    assert_same(stock, mine, relative=1e-5, absolute=1e-4)
    assert on_graph(mine)
    assert any("moves its buffer" in reason for reason in mine.trainer.report().reasons) == whole_step
    buffers = (dict(r.trainer.model.named_buffers()) for r in (stock, mine))
    for (name, expected), found in zip(next(buffers).items(), next(buffers).values(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, msg=name)


@MODES
def test_batches_that_a_norm_refuses_are_refused_alike(folder: Path, whole_step: bool) -> None:
    """Torch takes no batch of one here; that it is checked on other sizes must not stop the training."""
    data = points(9)
    stock, mine = both(
        seeded(kind=Odd),
        arguments(folder, max_steps=2),
        data,
        ours={"whole_step": whole_step, "check": True, "cache_dir": "off", "fallback": "torch"},
    )
    assert_same(stock, mine, relative=1e-5, absolute=1e-4)
    assert on_graph(mine)


# -- the optimizer in the graph


def model_hook(trainer: Any) -> None:
    trainer.model.register_forward_hook(lambda module, inputs, output: {**output, "loss": 2 * output["loss"]})
    trainer.train()


def later_loss(trainer: Any) -> None:
    trainer.train()
    trainer.compute_loss_func = lambda outputs, labels, num_items_in_batch=None: F.cross_entropy(
        outputs["logits"], labels, label_smoothing=0.3
    )
    trainer.train()


def later_smoothing(trainer: Any) -> None:
    trainer.train()
    trainer.label_smoother = transformers.trainer_pt_utils.LabelSmoother(epsilon=0.2)
    trainer.train()


def other_epsilon(trainer: Any) -> None:
    trainer.create_optimizer()
    for group in trainer.optimizer.param_groups:
        group["eps"] = 1e-2
    trainer.train()


def cleared_moments(trainer: Any) -> None:
    trainer.train()
    getattr(trainer.optimizer, "optimizer", trainer.optimizer).state.clear()
    trainer.train()


def unequal_steps(trainer: Any) -> None:
    trainer.train()
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][0]["step"] = torch.tensor(100.0)
    optimizer.load_state_dict(state)
    trainer.train()


def early_stopping(trainer: Any) -> None:
    trainer.args.eval_strategy, trainer.args.eval_steps = "steps", 1
    trainer.add_callback(Stop())
    trainer.train()
    trainer.evaluate()
    trainer.train()


def another_forward(trainer: Any) -> None:
    trainer.add_callback(Patching())
    trainer.train()


class Patching(transformers.TrainerCallback):
    """Replaces the `forward` of a part on the way."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == 1:
            before = model.second.forward
            model.second.forward = lambda hidden: 2 * before(hidden)


class Stop(transformers.TrainerCallback):
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= 2


@pytest.mark.slow
@MODES
@pytest.mark.parametrize(
    "use",
    [
        model_hook,
        later_loss,
        later_smoothing,
        other_epsilon,
        cleared_moments,
        unequal_steps,
        early_stopping,
        another_forward,
    ],
)
def test_what_is_changed_on_the_way_is_honoured(
    use: Callable[[Any], None], folder: Path, whole_step: bool
) -> None:
    used(seeded(), folder, whole_step, use)


@MODES
def test_gradients_that_are_no_numbers_spoil_the_weights_as_in_stock(folder: Path, whole_step: bool) -> None:
    """`min(1, NaN)` is 1 to some: clipping must not hide it."""
    data = points()
    data.batch["x"][5] = float("nan")
    args = arguments(folder, max_steps=4)
    stock = train(transformers.Trainer, seeded(), args, data)
    mine = train(Trainer, seeded(), args, data, whole_step=whole_step, check=False)
    assert [loss != loss for loss in mine.losses] == [loss != loss for loss in stock.losses]
    assert [norm != norm for norm in mine.norms] == [norm != norm for norm in stock.norms]
    for name, expected in stock.weights.items():
        assert torch.equal(mine.weights[name].isnan(), expected.isnan()), name


# -- fallbacks


@pytest.mark.slow
@MODES
def test_float64_trains_as_in_stock(folder: Path, whole_step: bool, caplog: Any) -> None:
    data = points()
    data.batch["x"] = data.batch["x"].double()
    ours = {"whole_step": whole_step, "fallback": "torch"}
    stock, mine = both(seeded().double(), arguments(folder, max_steps=3), data, ours=ours)
    assert_same(stock, mine, relative=1e-9, absolute=1e-9)


@MODES
def test_a_fallback_after_evaluating_in_torch_is_said(folder: Path, whole_step: bool, caplog: Any) -> None:
    data = points()
    trainer = Trainer(
        seeded(hooked_tensor),
        arguments(folder, max_steps=2),
        train_dataset=data,
        eval_dataset=data,
        whole_step=whole_step,
        cache_dir="off",
    )
    trainer.bridge.counts["torch"] += 1
    trainer.evaluate()
    trainer.train()
    assert any("hook" in message for message in caplog.messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wav2vec2", "hubert"])
def test_speech_models_are_on_the_graph(name: str, folder: Path) -> None:
    model = zoo.build(name, num_hidden_layers=1)
    stock, mine = both(model, arguments(folder, max_steps=2), Rows(zoo.batch(model, 8)), ours={"check": True})
    assert_same(stock, mine, relative=1e-5, absolute=1e-4)
    assert on_graph(mine)


# -- evaluation


class TwoMinded(Net):
    """Does something else in evaluation, and not by way of dropout."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.second(torch.tanh(self.first(x)))
        logits = logits if self.training else 3 * logits
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


@MODES
def test_an_evaluation_unlike_the_training_is_torchs(folder: Path, whole_step: bool, caplog: Any) -> None:
    data, metrics = points(), []
    for kind, chosen in (
        (transformers.Trainer, {}),
        (Trainer, {"whole_step": whole_step, "cache_dir": "off"}),
    ):
        args = arguments(folder, max_steps=2)
        trainer = kind(seeded(kind=TwoMinded), args, train_dataset=data, eval_dataset=data, **chosen)
        trainer.train()
        unlabelled = Rows({"x": data.batch["x"]})
        metrics.append((trainer.evaluate()["eval_loss"], trainer.predict(unlabelled).predictions.tolist()))
    assert metrics[1][0] == pytest.approx(metrics[0][0], rel=1e-5)
    assert torch.allclose(torch.tensor(metrics[1][1]), torch.tensor(metrics[0][1]), atol=1e-5)
    report = trainer.report()
    assert report.on_graph == 2
    assert any("in evaluation its l" in reason for reason in report.reasons)


# -- what comes in and goes out


def test_a_module_may_return_its_loss_alone() -> None:
    class Alone(Net):
        def forward(self, x: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x, labels)["loss"]

    model, batch = seeded(kind=Alone).train(), points(4).batch
    expected = torch.autograd.grad(model(**batch), list(model.parameters()))
    bridge = attach(model, Compiler(Settings()))
    found = torch.autograd.grad(model(**batch), list(model.parameters()))
    assert dict(bridge.counts) == {"step": 1}
    for wanted, given in zip(expected, found, strict=True):
        torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-6)


def test_answers_are_predicted_without_positions_on_the_graph(folder: Path) -> None:
    """As question answering is evaluated: its labels are for training alone."""
    model = zoo.build("bert-qa", num_hidden_layers=1)
    batch = {n: t for n, t in zoo.batch(model, 8, 8).items() if "positions" not in n}
    found = []
    for kind in (transformers.Trainer, Trainer):
        trainer = kind(copy.deepcopy(model), arguments(folder))
        found.append(trainer.predict(Rows(batch)).predictions)
    assert dict(trainer.bridge.counts) == {"predict": 2}
    for wanted, given in zip(*found, strict=True):
        torch.testing.assert_close(torch.tensor(given), torch.tensor(wanted), rtol=1e-4, atol=1e-5)


def test_a_sign_that_is_yet_to_be_applied(folder: Path) -> None:
    def collate(samples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        batch = {key: torch.stack([sample[key] for sample in samples]) for key in samples[0]}
        return {**batch, "x": torch._neg_view(batch["x"])}

    records = both(seeded(), arguments(folder, max_steps=4), points(), data_collator=collate)
    assert_same(*records, relative=1e-5, absolute=2e-5)


class Hiding(Net):
    """The first class is no label, and the scores of another are −∞."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.second(torch.tanh(self.first(x)))
        found = {"logits": logits.masked_fill(torch.tensor([True, False, False]), -torch.inf)}
        if labels is None:
            return found
        return {"loss": F.cross_entropy(logits, labels, ignore_index=0), **found}


@MODES
def test_rows_without_a_loss_and_scores_without_end(folder: Path, whole_step: bool) -> None:
    data = points()
    data.batch["labels"][4:] = 0
    args = arguments(folder, max_steps=4, per_device_train_batch_size=8)
    ours = {"whole_step": whole_step, "check": True}
    stock, mine = both(seeded(kind=Hiding), args, data, ours=ours)
    assert on_graph(mine)
    assert_same(stock, mine, relative=1e-5, absolute=2e-5)


@MODES
def test_a_norm_whose_statistics_stay(folder: Path, whole_step: bool) -> None:
    model = seeded(lambda net, hidden: net.norm(hidden))
    model.norm = nn.BatchNorm1d(6, momentum=0.0)
    model.first.bias = None  # the norm takes it off again, so that its gradient is rounding
    ours = {"whole_step": whole_step, "check": True}
    stock, mine = both(model, arguments(folder, max_steps=4), points(), ours=ours)
    assert_same(stock, mine, relative=1e-5, absolute=2e-5)
