"""What users of the stock Trainer rely on: evaluation, best models, frozen layers, saving, searching."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from trainer_harness import PIPELINE, Rows, arguments, assert_same, both, loss_runner, make, rows, train

from fuseline.engine import runtime
from fuseline.engine.files import load
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def test_evaluation_metrics_best_model_and_early_stopping(folder: Path) -> None:
    settings: dict[str, Any] = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_total_limit": 1,
        "load_best_model_at_end": True,
        "metric_for_best_model": "accuracy",
        "max_steps": 12,
        "learning_rate": 5e-3,
    }
    model = zoo.build("bert")
    held_out = rows(model, 10, seed=5)
    histories = []
    for kind, extra in ((transformers.Trainer, {}), (Trainer, {"fallback": "error", "pipeline": PIPELINE})):
        record = train(
            kind,
            model,
            arguments(folder / kind.__module__, **settings),
            rows(model, 40),
            eval_dataset=held_out,
            compute_metrics=accuracy,
            callbacks=[transformers.EarlyStoppingCallback(early_stopping_patience=2)],
            **extra,
        )
        history = [e for e in record.trainer.state.log_history if "eval_loss" in e]
        histories.append((history, record.trainer.evaluate(), record.trainer.state))
    (stock, stock_final, stock_state), (mine, my_final, my_state) = histories
    assert [e["eval_accuracy"] for e in mine] == [e["eval_accuracy"] for e in stock]
    assert [e["eval_loss"] for e in mine] == pytest.approx([e["eval_loss"] for e in stock], rel=1e-5)
    assert my_final["eval_loss"] == pytest.approx(stock_final["eval_loss"], rel=1e-5)
    assert my_state.best_global_step == stock_state.best_global_step
    assert my_state.global_step == stock_state.global_step


def test_predict_without_labels(folder: Path) -> None:
    model = zoo.build("bert").eval()
    batch = zoo.batch(model, 7, 8)
    del batch["labels"]
    with torch.no_grad():
        expected = model(**batch).logits.numpy()
    trainer = make(model, arguments(folder))
    found = trainer.predict(Rows(batch))
    np.testing.assert_allclose(found.predictions, expected, atol=1e-5)
    assert found.label_ids is None
    assert trainer.bridge.counts["predict"] == 2


def test_frozen_layers_get_no_gradient(folder: Path) -> None:
    model = zoo.build("bert")
    for parameter in model.bert.embeddings.parameters():
        parameter.requires_grad_(False)
    stock, mine = both(model, arguments(folder, max_steps=6), rows(model, 20))
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)
    outputs = loss_runner(mine.trainer).outputs
    assert not [o for o in outputs if o.startswith("bert.embeddings") and o.endswith("_grad")]


def test_lengths_grouped_and_padded_in_batches(folder: Path) -> None:
    """Every batch has another shape; one session serves all."""
    model = zoo.build("bert")
    lengths = [3 + (7 * i) % 11 for i in range(22)]
    examples = [{k: v[0].tolist() for k, v in zoo.batch(model, 1, n, seed=n).items()} for n in lengths]

    def pad(items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(len(e["input_ids"]) for e in items)
        padded = {
            k: torch.tensor([e[k] + [0] * (longest - len(e[k])) for e in items])
            for k in ("input_ids", "attention_mask", "token_type_ids")
        }
        return padded | {"labels": torch.tensor([e["labels"] for e in items])}

    args = arguments(folder, max_steps=12, train_sampling_strategy="group_by_length")
    stock, mine = both(model, args, examples, data_collator=pad)
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)


def test_dropout_repeats_with_its_seed(folder: Path) -> None:
    model = zoo.build("bert", dropout=0.2)
    data = rows(model, 20)

    def losses(seed: int) -> list[float]:
        args = arguments(folder, max_steps=5, seed=seed)
        return train(Trainer, model, args, data, fallback="error", pipeline=PIPELINE).losses

    first = losses(1)
    assert losses(1) == first
    assert losses(2) != first


def test_saved_model_loads_in_stock_and_onnx_runs(folder: Path) -> None:
    model = zoo.build("bert")
    trainer = make(model, arguments(folder, max_steps=3), train_dataset=rows(model, 12))
    trainer.train()
    trainer.save_model(str(folder / "saved"))
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "saved").eval()
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, dict(model.named_parameters())[name]), name
    path = trainer.save_onnx(folder / "model.onnx")
    batch = zoo.batch(model, 3, 6)
    del batch["labels"]
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    found = session.run(["logits"], {k: v.numpy() for k, v in batch.items()})[0]
    with torch.no_grad():
        expected = loaded(**batch).logits.numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # Nothing but standard operators: any onnxruntime runs it.
    assert {n.domain for n in load(path).nodes()} <= {""}
    # And it is a model for inference like any other.
    optimised = Pipeline.resolve("inference").run(load(path)).model
    assert any(n.op_type == "MultiHeadAttention" or n.op_type == "Attention" for n in optimised.nodes())
    again = runtime.run(runtime.session(optimised, threads=1), {k: v.numpy() for k, v in batch.items()})
    np.testing.assert_allclose(again["logits"], expected, atol=1e-5)


def test_copies_of_the_model_are_torch_models(folder: Path) -> None:
    model = zoo.build("bert")
    make(model, arguments(folder))
    copied = copy.deepcopy(model)
    assert "forward" not in type(copied.forward).__name__.lower()
    assert copied.forward.__self__ is copied


@pytest.mark.parametrize("whole_step", [pytest.param(False, marks=pytest.mark.slow), True])
def test_search_exports_once(whole_step: bool, folder: Path) -> None:
    pytest.importorskip("optuna")
    built = zoo.build("bert")
    trainer = Trainer(
        None,
        arguments(folder, max_steps=2, warmup_steps=0),
        model_init=lambda: copy.deepcopy(built),
        train_dataset=rows(built, 12),
        eval_dataset=rows(built, 6, seed=3),
        fallback="error",
        pipeline=PIPELINE,
        cache_dir=str(folder / "cache"),
        whole_step=whole_step,
        check=False,
    )
    tried: dict[float, float] = {}

    def objective(metrics: dict[str, float]) -> float:
        tried[trainer.args.learning_rate] = metrics["eval_loss"]
        return metrics["eval_loss"]

    best = trainer.hyperparameter_search(
        lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True)},
        compute_objective=objective,
        n_trials=4,
        direction="minimize",
    )
    assert best.objective == min(tried.values())
    assert best.hyperparameters == {"learning_rate": min(tried, key=lambda rate: tried[rate])}
    # Every trial started from the same weights, ran at its own rate, and compiled nothing of its own.
    assert len(tried) == len(set(tried.values())) == 4
    assert dict(trainer.compiler.counts) == {"exports": 1, "pipelines": 2}  # the step and the evaluation
    rate, expected = next(iter(tried.items()))
    stock = train(
        transformers.Trainer,
        built,
        arguments(folder, max_steps=2, warmup_steps=0, learning_rate=rate),
        rows(built, 12),
        eval_dataset=rows(built, 6, seed=3),
    )
    assert expected == pytest.approx(stock.trainer.evaluate()["eval_loss"], rel=1e-5)
