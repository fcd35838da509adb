"""Inputs, outputs and loss come from the call itself: plain modules, extra inputs, other results."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from trainer_harness import arguments, assert_same, both, make
from trainer_nets import MODES, SLOW_MODES

from fuseline.engine.errors import FuselineError
from fuseline.tools.campaigns import zoo
from fuseline.tools.campaigns.rows import Rows
from fuseline.tools.trainer import CompileCache, Compiler, Settings, attach
from fuseline.tools.trainer.call import Call, Unsuited, read_call
from fuseline.tools.trainer.form import Form, forms
from fuseline.tools.trainer.result import Template

CHECKED = {"check": True, "cache_dir": "off"}


class Classifier(nn.Module):
    """No config, no task, and a result with a choice and a tuple in it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None, scale: float = 1.0) -> Any:
        hidden = torch.relu(self.first(x))
        logits = self.second(hidden) * scale
        logits = logits.mean(1) if logits.dim() == 3 else logits
        result = {"logits": logits, "best": logits.argmax(-1), "parts": (x, hidden)}
        if labels is None:
            return result
        return {"loss": nn.functional.cross_entropy(logits, labels), **result}


def points(count: int = 16) -> Rows:
    generator = torch.Generator().manual_seed(3)
    return Rows(
        {
            "x": torch.randn(count, 6, generator=generator),
            "labels": torch.randint(0, 3, (count,), generator=generator),
        }
    )


@MODES
def test_a_plain_module_trains_and_evaluates_as_in_stock(folder: Path, whole_step: bool) -> None:
    torch.manual_seed(0)
    data = points()
    ours = {**CHECKED, "whole_step": whole_step}
    stock, mine = both(Classifier(), arguments(folder, max_steps=6), data, ours=ours, eval_dataset=data)
    assert_same(stock, mine, relative=1e-5, absolute=1e-5)
    assert mine.trainer.report().in_torch == 0
    expected, found = (t.predict(data) for t in (stock.trainer, mine.trainer))
    assert found.metrics["test_loss"] == pytest.approx(expected.metrics["test_loss"], rel=1e-5)
    flat = [(e, f) for e, f in zip(expected.predictions[:2], found.predictions[:2], strict=True)]
    flat += list(zip(expected.predictions[2], found.predictions[2], strict=True))
    for wanted, given in flat:
        np.testing.assert_allclose(given, wanted, atol=1e-5)
    assert mine.trainer.report().in_torch == 0


def test_a_loss_outside_a_plain_module(folder: Path) -> None:
    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        return nn.functional.cross_entropy(outputs["logits"], labels, label_smoothing=0.1)

    torch.manual_seed(0)
    stock, mine = both(
        Classifier(), arguments(folder, max_steps=4), points(), ours=CHECKED, compute_loss_func=loss
    )
    assert_same(stock, mine, relative=1e-5, absolute=1e-5)
    assert set(mine.trainer.bridge.counts) == {"split"}


class Growing(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Every four rows are longer than the four before."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(index)
        return {
            "x": torch.randn(3 + index // 4, 6, generator=generator),
            "labels": torch.tensor(index % 3),
        }


@MODES
def test_sizes_that_change_have_one_more_graph(folder: Path, whole_step: bool) -> None:
    torch.manual_seed(0)
    args = arguments(folder, max_steps=3, train_sampling_strategy="sequential")
    stock, mine = both(Classifier(), args, Growing(), ours={**CHECKED, "whole_step": whole_step})
    assert_same(stock, mine, relative=1e-5, absolute=1e-5)
    assert mine.trainer.report().in_torch == 0
    # One for the first length, one for the second and all others.
    assert mine.trainer.compiler.counts["exports"] == 2


def test_an_inference_graph_of_a_plain_module_takes_no_labels(folder: Path) -> None:
    trainer = make(Classifier(), arguments(folder, max_steps=1), train_dataset=points(), cache_dir="off")
    with pytest.raises(FuselineError, match="how Classifier is called is not known yet"):
        trainer.save_onnx(folder / "model.onnx")
    trainer.train()
    from fuseline.engine.model import Model

    saved = Model.load(trainer.save_onnx(folder / "model.onnx"))
    assert [v.name for v in saved.graph.inputs] == ["x"]


@SLOW_MODES
def test_a_batch_with_position_ids(folder: Path, whole_step: bool) -> None:
    model = zoo.build("gpt2", num_hidden_layers=1)
    batch = zoo.batch(model, 8, 8, seed=0)
    batch["position_ids"] = torch.arange(8).flip(0).repeat(8, 1)
    ours = {**CHECKED, "whole_step": whole_step}
    stock, mine = both(model, arguments(folder, max_steps=2), Rows(batch), ours=ours)
    assert_same(stock, mine, relative=1e-5, absolute=1e-5)
    assert mine.trainer.report().in_torch == 0


@SLOW_MODES
def test_a_seq2seq_batch_as_its_collator_makes_it(folder: Path, whole_step: bool) -> None:
    model: Any = zoo.build("bart", encoder_layers=1, decoder_layers=1)
    batch = zoo.batch(model, 8, 8, seed=0)
    batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
    data = Rows(batch)
    ours = {**CHECKED, "whole_step": whole_step}
    stock, mine = both(model, arguments(folder, max_steps=2), data, ours=ours)
    assert_same(stock, mine, relative=1e-5, absolute=1e-4)
    expected, found = (t.predict(data).predictions for t in (stock.trainer, mine.trainer))
    assert [e.shape for e in found] == [e.shape for e in expected]
    for wanted, given in zip(expected, found, strict=True):
        np.testing.assert_allclose(given, wanted, atol=1e-3)
    assert mine.trainer.report().in_torch == 0


@SLOW_MODES
def test_results_without_names(folder: Path, whole_step: bool) -> None:
    model: Any = zoo.build("bert", num_hidden_layers=1)
    model.config.return_dict = False
    model.config.output_hidden_states = True
    data = Rows(zoo.batch(model, 8, 8, seed=0))
    ours = {**CHECKED, "whole_step": whole_step}
    stock, mine = both(model, arguments(folder, max_steps=2), data, ours=ours)
    assert_same(stock, mine, relative=1e-5, absolute=1e-4)
    expected, found = (t.predict(data).predictions for t in (stock.trainer, mine.trainer))
    assert len(found) == len(expected)
    assert len(found[1]) == len(expected[1]) == 2
    assert mine.trainer.report().in_torch == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_weights_of_low_precision(folder: Path, dtype: torch.dtype, caplog: Any) -> None:
    torch.manual_seed(0)
    data = Rows({**points().batch, "x": points().batch["x"].to(dtype)})
    args = arguments(folder, max_steps=4, optim="sgd")
    with caplog.at_level("WARNING"):
        stock, mine = both(Classifier().to(dtype), args, data, ours=CHECKED)
    assert_same(stock, mine, relative=2e-2, absolute=2e-3)
    assert {p.dtype for p in mine.trainer.model.parameters()} == {dtype}
    assert mine.trainer.report().in_torch == 0
    name = str(dtype).removeprefix("torch.")
    (told,) = [m for m in caplog.messages if m.startswith("the weights of Classifier")]
    assert f"are {name}: the graph computes in float32" in told
    saved = mine.trainer.bridge.inference()
    weight = saved.graph.initializers["first.weight"].const_value.numpy()
    np.testing.assert_array_equal(weight, mine.trainer.model.first.weight.detach().float().numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_packed_weights_of_low_precision(folder: Path, dtype: torch.dtype) -> None:
    """The first compilation, in which nothing comes from the cache, packs weights in float32."""
    model = zoo.build("bert", num_hidden_layers=1).to(dtype)
    ours = {"pipeline": "training", "cache_dir": "off"}
    args = arguments(folder, max_steps=2, optim="sgd")
    stock, mine = both(model, args, Rows(zoo.batch(model, 8, 8, seed=0)), ours=ours)
    assert_same(stock, mine, relative=3e-2, absolute=3e-3)
    assert mine.trainer.report().in_torch == 0


def test_weights_of_low_precision_have_no_whole_step(folder: Path, caplog: Any) -> None:
    model = Classifier().to(torch.bfloat16)
    with caplog.at_level("WARNING"):
        make(model, arguments(folder), train_dataset=points(), whole_step=True, fallback="torch")
    assert any("weights are bfloat16, not float32" in m for m in caplog.messages)


def test_dynamo_keeps_out(folder: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BACKEND", "MODE"):
        monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name}", "")  # the arguments leave them set
    with caplog.at_level("WARNING"):
        args = arguments(folder, max_steps=2, torch_compile=True)
        trainer = make(Classifier(), args, train_dataset=points(), cache_dir="off")
        trainer.train()
    assert "torch_compile=True: the model is compiled for ONNX Runtime instead" in caplog.messages
    assert trainer.report().in_torch == 0
    assert trainer.model_wrapped is trainer.model


def calling(**tensors: Tensor) -> Call:
    return Call(tensors=dict(tensors))


def test_a_form_gives_changing_sizes_names() -> None:
    first = calling(x=torch.zeros(4, 6, 5), mask=torch.zeros(4, 6), labels=torch.zeros(4))
    (form,) = forms(nn.Linear(1, 1), first, with_loss=True)
    assert dict(form.axes) == {"x": ("batch", 6, 5), "mask": ("batch", 6), "labels": ("batch",)}
    other = calling(x=torch.zeros(2, 9, 5), mask=torch.zeros(2, 9), labels=torch.zeros(2))
    assert not form.admits(other.tensors)
    grown = form.grown(other)
    assert dict(grown.axes) == {"x": ("batch", "x_1", 5), "mask": ("batch", "x_1"), "labels": ("batch",)}
    assert grown.admits(first.tensors)
    assert grown.admits(other.tensors)
    apart = calling(x=torch.zeros(2, 9, 5), mask=torch.zeros(2, 7), labels=torch.zeros(2))
    assert not grown.admits(apart.tensors)
    assert dict(grown.grown(apart).axes)["mask"] == ("batch", "mask_1")


def test_a_call_that_fits_the_task_is_exported_by_it() -> None:
    model = zoo.build("bert", num_hidden_layers=1)
    ids = torch.ones(2, 5, dtype=torch.long)
    first = next(forms(model, calling(input_ids=ids, labels=ids[:, 0]), with_loss=True))
    assert first == Form("text-classification")
    extra = calling(input_ids=ids, position_ids=ids, labels=ids[:, 0])
    by_call = next(forms(model, extra, with_loss=True))
    assert by_call.task is None
    assert dict(by_call.axes)["position_ids"] == ("batch", "sequence")


def test_a_result_is_filled_as_it_was() -> None:
    result = transformers.modeling_outputs.Seq2SeqLMOutput(
        loss=torch.tensor(1.0), logits=torch.zeros(2), decoder_hidden_states=(torch.ones(1), torch.ones(2))
    )
    template = Template(result)
    filled = template.fill(torch.tensor(2.0), [torch.full((2,), 3.0), torch.full((1,), 4.0), torch.ones(2)])
    assert isinstance(filled, transformers.modeling_outputs.Seq2SeqLMOutput)
    assert (float(filled.loss), float(filled.logits[0])) == (2.0, 3.0)
    assert float(filled.decoder_hidden_states[0]) == 4.0
    assert len(filled.decoder_hidden_states) == 2
    alone = template.fill(torch.tensor(2.0), None)
    assert list(alone) == ["loss"] or alone.logits is None


def test_generation_is_not_for_a_graph() -> None:
    def forward(
        input_ids: Any, past_key_values: Any = None, use_cache: Any = None, **kwargs: Any
    ) -> None: ...

    signature = inspect.signature(forward)
    for extra in ({"past_key_values": object()}, {"use_cache": True}, {"cache_position": torch.zeros(1)}):
        with pytest.raises(Unsuited, match="is no input of the graph"):
            read_call(signature, (torch.zeros(1),), extra)


class Choosing(nn.Module):
    """Arguments whose defaults are not None, not False, and of more than one type."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(
        self,
        x: Tensor,
        labels: Tensor | None = None,
        factor: Any = 5.0,
        output_attentions: bool = True,
        return_dict: bool = False,
    ) -> Any:
        kind = {bool: 7.0, int: 2.0}.get(type(factor), 1.0)
        scores = self.layer(x) * (factor or 3.0) * kind * (1.0 if output_attentions else 0.5)
        loss = nn.functional.cross_entropy(scores, labels)
        return {"loss": 2 * loss, "scores": scores} if return_dict else (loss, scores)


def test_arguments_are_what_they_are_and_not_the_defaults() -> None:
    """What was left out of a call would be the default, and 1 is equal to 1.0 and to True."""
    model = Choosing()
    batch = {"x": torch.randn(4, 6), "labels": torch.tensor([0, 1, 1, 0])}
    calls: list[dict[str, Any]] = [{"factor": value} for value in (None, 1, 1.0, True)]
    calls += [{"output_attentions": False}, {"return_dict": True}]
    expected = [model(**batch, **call) for call in calls]
    bridge = attach(model, Compiler(Settings(cache=CompileCache.at("off"))))
    for call, wanted in zip(calls, expected, strict=True):
        given = model(**batch, **call)
        assert type(given) is type(wanted)
        values = (w.values() if isinstance(w, dict) else w for w in (given, wanted))
        torch.testing.assert_close(*(tuple(v) for v in values), rtol=1e-5, atol=1e-5)
    assert bridge.counts["torch"] == 0


def test_a_switch_that_the_config_turns_on_can_be_turned_off_in_a_call() -> None:
    model = zoo.build("bert", num_hidden_layers=1)
    model.config.output_hidden_states = True
    asked = {"output_hidden_states": False, "output_attentions": False, "use_cache": False}
    call = read_call(inspect.signature(model.forward), (), asked, model.config)
    assert call.arguments == (("output_hidden_states", False),)
