"""What a stock run does and a graph might miss, in the ordinary mode and with the optimizer in the graph."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from trainer_harness import arguments, assert_same, both, make, recording, rows
from trainer_nets import MODES

import fuseline
from fuseline.exporters import export
from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer
from fuseline.tools.trainer.items import find_rule


def small() -> Any:
    return zoo.build("bert", num_hidden_layers=1)


def followed(
    model: nn.Module, args: Any, data: Any, use: Callable[[Any], None], whole_step: bool
) -> tuple[list[float], list[float]]:
    """The losses of both trainers, each used in the same way."""
    losses = []
    for kind, chosen in ((transformers.Trainer, {}), (Trainer, {"whole_step": whole_step})):
        trainer = recording(kind)(copy.deepcopy(model), args, train_dataset=data, eval_dataset=data, **chosen)
        use(trainer)
        losses.append(trainer.record.losses)
    return losses[0], losses[1]


@MODES
def test_batches_of_one_with_accumulation(folder: Path, whole_step: bool) -> None:
    model = small()
    args = arguments(folder, per_device_train_batch_size=1, gradient_accumulation_steps=4, max_steps=3)
    stock, mine = both(model, args, rows(model, 12), ours={"whole_step": whole_step})
    assert_same(stock, mine, relative=1e-5, absolute=1e-5)


@pytest.mark.parametrize(
    ("labels", "rule"),
    [([1], "labels"), ([[1]], "labels"), ([[0, 2]], "labels"), ([[-100, -100]], "labels"), ([-100], None)],
)
def test_the_rule_of_a_loss_is_found_on_any_batch(labels: Any, rule: str | None) -> None:
    def forward(labels: Any, num_items_in_batch: Any = None) -> Any:
        counted = labels.ne(-100).sum()
        total = 0.7 * counted
        loss = total / (counted if num_items_in_batch is None else num_items_in_batch)
        return transformers.modeling_outputs.ModelOutput(loss=loss)

    assert find_rule(forward, {"labels": torch.tensor(labels)}) == rule


class Hot(transformers.TrainerCallback):
    """Changes the model while it trains, in one of several ways."""

    def __init__(self, how: str) -> None:
        self.how = how

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step != 2:
            return
        torch.manual_seed(3)
        if self.how == "attribute":
            model.bert.encoder.layer[0].attention.self.scaling = 5.0
        elif self.how == "module":
            fresh = nn.Linear(model.classifier.in_features, model.classifier.out_features)
            with torch.no_grad():
                model.classifier.weight.copy_(fresh.weight)
            model.bert.pooler.activation = nn.ReLU()
        elif self.how == "frozen norm":
            model.bert.embeddings.LayerNorm.weight.requires_grad_(False)
        elif self.how == "mode":
            model.bert.encoder.eval()


@MODES
@pytest.mark.parametrize("how", ["attribute", "module", "frozen norm"])
def test_a_model_that_changes_while_it_trains(folder: Path, how: str, whole_step: bool) -> None:
    model = small()
    args = arguments(folder, max_steps=5)

    def use(trainer: Any) -> None:
        trainer.add_callback(Hot(how))
        trainer.train()

    stock, mine = followed(model, args, rows(model, 20), use, whole_step)
    assert mine == pytest.approx(stock, rel=1e-5)


def test_a_part_in_another_mode_runs_in_torch(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = zoo.build("bert", num_hidden_layers=1, dropout=0.1)
    trainer = make(model, arguments(folder, max_steps=2), train_dataset=rows(model, 8), fallback="torch")
    trainer.train()
    model.train()
    model.bert.encoder.eval()
    batch = zoo.batch(model, 2, 8)
    model(**batch)
    assert trainer.bridge.counts["torch"] == 1
    assert any("'bert.encoder' evaluates" in message for message in caplog.messages)


@MODES
def test_training_twice_saving_and_evaluating_between(folder: Path, whole_step: bool) -> None:
    model = small()

    def use(trainer: Any) -> None:
        trainer.train()
        trainer.save_model(str(folder / "saved"))
        trainer.evaluate()
        trainer.train()
        trainer.predict(trainer.eval_dataset)

    stock, mine = followed(model, arguments(folder, max_steps=3), rows(model, 12), use, whole_step)
    assert mine == pytest.approx(stock, rel=1e-5)


def edit_betas(trainer: Any) -> None:
    trainer.create_optimizer()
    for group in trainer.optimizer.param_groups:
        group["betas"] = (0.5, 0.6)


def maximize(trainer: Any) -> None:
    trainer.create_optimizer()
    for group in trainer.optimizer.param_groups:
        group["maximize"] = True


def gradient_hook(trainer: Any) -> None:
    trainer.model.classifier.weight.register_hook(lambda gradient: gradient * 3)


class Halve(transformers.TrainerCallback):
    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **kw: Any
    ) -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(0.5)


def halving(trainer: Any) -> None:
    trainer.add_callback(Halve())


def no_clipping(trainer: Any) -> None:
    trainer.args.max_grad_norm = 0.0


@MODES
@pytest.mark.parametrize("change", [edit_betas, maximize, gradient_hook, halving, no_clipping])
def test_what_an_optimizer_in_the_graph_has_to_honour(
    folder: Path, change: Callable[[Any], None], whole_step: bool
) -> None:
    model = small()
    norms = []

    def use(trainer: Any) -> None:
        change(trainer)
        trainer.train()
        norms.append(trainer.record.norms)

    stock, mine = followed(model, arguments(folder, max_steps=4), rows(model, 16), use, whole_step)
    assert mine == pytest.approx(stock, rel=1e-5)
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


@MODES
def test_a_new_optimizer_starts_anew(folder: Path, whole_step: bool) -> None:
    model = small()

    def use(trainer: Any) -> None:
        trainer.train()
        trainer.optimizer = trainer.lr_scheduler = None
        trainer.train()

    stock, mine = followed(model, arguments(folder, max_steps=3), rows(model, 12), use, whole_step)
    assert mine == pytest.approx(stock, rel=1e-5)


@MODES
def test_the_random_state_is_left_alone_without_dropout(folder: Path, whole_step: bool) -> None:
    model = small()
    drawn = []

    def use(trainer: Any) -> None:
        trainer.train()
        drawn.append(float(torch.rand(())))

    followed(model, arguments(folder, max_steps=2), rows(model, 8), use, whole_step)
    assert drawn[0] == drawn[1]


@MODES
def test_a_batch_without_labels_counts_nothing(folder: Path, whole_step: bool) -> None:
    model = zoo.build("gpt2", num_hidden_layers=1)
    data = rows(model, 8)
    data.batch["labels"][4:] = -100
    args = arguments(folder, gradient_accumulation_steps=2, max_steps=1)
    stock, mine = both(model, args, data, ours={"whole_step": whole_step})
    assert all(loss == loss for loss in mine.losses)
    assert_same(stock, mine, relative=1e-5, absolute=1e-5)


def test_any_error_of_compiling_is_a_fallback(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise KeyError("eos_token_id")

    monkeypatch.setattr("fuseline.tools.trainer.compiler.export", refuse)
    model = small()
    ours = {"fallback": "torch", "cache_dir": "off"}
    stock, mine = both(model, arguments(folder, max_steps=2), rows(model, 8), ours=ours)
    assert_same(stock, mine, relative=0, absolute=0)
    (warning,) = [m for m in caplog.messages if "cannot run on ONNX Runtime" in m]
    assert "KeyError: 'eos_token_id'" in warning


def test_what_needs_no_torch_stays_on_the_graph(folder: Path) -> None:
    """Checkpointing, an earlier call that asked for hidden states, and outputs without names."""
    model = small()
    model(**zoo.batch(model, 2, 8), output_hidden_states=True)
    model.config.return_dict = False
    args = arguments(folder, max_steps=2, gradient_checkpointing=True)
    stock, mine = both(model, args, rows(model, 8), ours={"check": True})
    assert_same(stock, mine, relative=1e-5, absolute=1e-5)
    assert mine.trainer.report().in_torch == 0


@pytest.mark.parametrize("chosen", [True, "nowhere"])
def test_resuming_from_nothing_fails_as_in_the_stock_trainer(folder: Path, chosen: Any) -> None:
    model = small()
    messages = []
    for kind in (transformers.Trainer, Trainer):
        trainer = kind(model, arguments(folder), train_dataset=rows(model, 8))
        with pytest.raises(ValueError, match="checkpoint") as caught:
            trainer.train(resume_from_checkpoint=chosen)
        messages.append(str(caught.value).splitlines()[0])
    assert messages[0] == messages[1]


class AstrayForSequenceClassification(transformers.BertForSequenceClassification):
    """A classifier that does something else while it is exported."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Any:
        output = super().forward(input_ids, attention_mask, token_type_ids, labels=labels)
        if not torch.compiler.is_exporting():
            output["loss"] = output["loss"] + 0.1 * self.classifier.weight.sum()
        return output


def test_a_wrong_gradient_is_found_before_training(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuseline.tools.trainer.compiler.export", functools.partial(export, check=False))
    model = AstrayForSequenceClassification(zoo.config("bert", num_hidden_layers=1))
    ours = {"fallback": "torch", "check": True, "cache_dir": "off"}
    stock, mine = both(model, arguments(folder, max_steps=2), rows(model, 8), ours=ours)
    assert_same(stock, mine, relative=0, absolute=0)
    (warning,) = [m for m in caplog.messages if "cannot run on ONNX Runtime" in m]
    assert "does not give torch's gradients" in warning
    assert "classifier.weight by" in warning
    assert "padded on the left" in warning


def test_gradients_that_cancel_are_judged_by_their_rounding(folder: Path) -> None:
    """Two equal rows with opposite labels: what is left of the gradients is mostly rounding."""
    model = zoo.build("bert", num_hidden_layers=1, num_labels=2)
    with torch.no_grad():
        model.classifier.weight.mul_(1e-3)
    row = {k: v[0] for k, v in zoo.batch(model, 1, 8).items()}
    data = [{**row, "labels": torch.tensor(label)} for label in (0, 1)]
    trainer = make(model, arguments(folder, max_steps=1), train_dataset=data, check=True, cache_dir="off")
    trainer.train()
    report = trainer.report()
    assert (report.on_graph, report.in_torch) == (1, 0), report


def test_the_check_is_made_once_and_kept(folder: Path) -> None:
    model = zoo.build("bert", num_hidden_layers=1, dropout=0.1)
    for start in range(2):
        trainer = make(
            copy.deepcopy(model),
            arguments(folder, max_steps=2),
            train_dataset=rows(model, 8),
            check=True,
            cache_dir=folder / "cache",
        )
        trainer.train()
        report = trainer.report([zoo.batch(model, 2, 8)])
        assert report.gradient_difference is not None
        assert report.gradient_difference < 1e-4
        assert (report.on_graph, report.in_torch) == (2, 0)
        assert report.speed is not None
        assert "2 calls on ONNX Runtime, 0 in torch" in str(report)
        assert dict(trainer.compiler.counts) == (
            {"exports": 1, "pipelines": 3} if start == 0 else {"cache hits": 3}
        )


def test_the_words_of_ort_trainer_are_understood(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = small()
    args = arguments(folder, max_steps=1, optim="adamw_ort_fused")
    assert args.optim == "adamw_fuseline"
    trainer = make(model, args, train_dataset=rows(model, 4), inference_with_ort=True)
    trainer.evaluate(rows(model, 4), inference_with_ort=True)
    assert any("adamw_ort_fused" in message for message in caplog.messages)


@pytest.mark.parametrize("kind", ["TrainingArguments", "Seq2SeqTrainingArguments"])
def test_arguments_are_read_from_a_command_line(kind: str, folder: Path) -> None:
    """As the example scripts of transformers read them."""
    line = ["--output_dir", str(folder), "--learning_rate", "0.5", "--use_cpu", "True"]
    stock, mine = (
        transformers.HfArgumentParser(getattr(place, kind)).parse_args_into_dataclasses(line)[0]
        for place in (transformers, fuseline)
    )
    left_out = ("logging_dir",)  # by the clock
    assert {k: v for k, v in mine.to_dict().items() if k not in left_out} == {
        k: v for k, v in stock.to_dict().items() if k not in left_out
    }
    parser = transformers.HfArgumentParser(getattr(fuseline, kind))
    for given in ("adamw_fuseline", "adamw_ort_fused"):
        assert parser.parse_args_into_dataclasses([*line, "--optim", given])[0].optim == "adamw_fuseline"
