"""`Seq2SeqTrainer`: trained on the graph, generating in torch with the trained weights."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from trainer_harness import PIPELINE, arguments, make, rows

from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Seq2SeqTrainer, Seq2SeqTrainingArguments


@pytest.mark.parametrize("name", ["t5", pytest.param("bart", marks=pytest.mark.slow)])
def test_generates_what_the_stock_trainer_generates(name: str, folder: Path) -> None:
    model = zoo.build(name)
    seen: list[Any] = []

    def lengths(prediction: Any) -> dict[str, float]:
        seen.append(prediction.predictions)
        return {"tokens": float((prediction.predictions > 2).sum())}

    results = []
    for kind, extra in (
        (transformers.Seq2SeqTrainer, {}),
        (Seq2SeqTrainer, {"fallback": "error", "pipeline": PIPELINE}),
    ):
        args = Seq2SeqTrainingArguments(
            output_dir=str(folder),
            max_steps=8,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            learning_rate=1e-2,
            eval_strategy="steps",
            eval_steps=4,
            predict_with_generate=True,
            generation_max_length=12,
            generation_num_beams=2,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer: Any = kind(
            copy.deepcopy(model),
            args,
            train_dataset=rows(model, 20),
            eval_dataset=rows(model, 6, seed=2),
            compute_metrics=lengths,
            **extra,
        )
        trainer.train()
        predicted = trainer.predict(rows(model, 6, seed=3), max_length=9, num_beams=1)
        losses = [e["eval_loss"] for e in trainer.state.log_history if "eval_loss" in e]
        results.append((losses, predicted))
    (stock_losses, stock), (my_losses, mine) = results
    assert my_losses == pytest.approx(stock_losses, rel=1e-4)
    assert mine.metrics["test_loss"] == pytest.approx(stock.metrics["test_loss"], rel=1e-4)
    np.testing.assert_array_equal(mine.predictions, stock.predictions)
    for expected, found in zip(seen[:3], seen[3:], strict=True):
        np.testing.assert_array_equal(found, expected)
    assert trainer.bridge.counts["loss"] == 8
    assert trainer.bridge.counts["evaluate"] >= 6


def test_an_inference_graph_needs_no_labels_and_generates(folder: Path) -> None:
    model: Any = zoo.build("bart", encoder_layers=1, decoder_layers=1)
    args = arguments(folder, max_steps=1)
    trainer = make(model, args, train_dataset=rows(model, 8), cache_dir="off")
    trainer.train()
    session = onnxruntime.InferenceSession(trainer.save_onnx(folder / "model.onnx"))
    assert {i.name for i in session.get_inputs()} == {"input_ids", "attention_mask", "decoder_input_ids"}
    batch = zoo.batch(model, 2, 8, seed=5)
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with trainer.bridge.detached():
        expected = model.eval().generate(
            **source, max_new_tokens=4, min_new_tokens=4, do_sample=False, num_beams=1
        )
    written = expected[:, :1]
    feeds = {name: tensor.numpy() for name, tensor in source.items()}
    for _ in range(4):
        scores = session.run(["logits"], {**feeds, "decoder_input_ids": written.numpy()})[0][:, -1]
        scores[:, model.generation_config.eos_token_id] = -np.inf  # as `min_new_tokens` has it
        written = torch.cat([written, torch.from_numpy(scores.argmax(-1))[:, None]], dim=1)
    assert torch.equal(written, expected)
