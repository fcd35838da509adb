"""Loss and gradients of the labelled rows alone against torch, whichever rows these are."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch

from fuseline.engine.model import Model
from fuseline.engine.observers import Verify
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.portability import training_only
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.kernels import available
from fuseline.tools.campaigns import zoo

PIPELINES = ["training-stock", *(["training"] if available() else [])]
MODELS = ["bert-mlm", "gpt2"]
IGNORED = -100


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@functools.cache
def exported(name: str) -> tuple[Any, Model]:
    model = zoo.build(name)
    return model, export(model, train=True, check=False)


@functools.cache
def step_of(name: str, pipeline: str) -> TrainingStep:
    result = Pipeline.resolve(pipeline).run(exported(name)[1])
    (record,) = [r for r in result.records if r.name == "select-labelled"]
    assert record.changes == 1, record.rejections
    return TrainingStep(result.model, threads=1)


def labelled(name: str, batch: int, length: int, share: float) -> dict[str, torch.Tensor]:
    inputs = zoo.batch(exported(name)[0], batch=batch, seq=length, seed=batch)
    draws = torch.rand(inputs["labels"].shape, generator=torch.Generator().manual_seed(length))
    filled = inputs["labels"].masked_fill(inputs["labels"] == IGNORED, 3)
    return {**inputs, "labels": filled.masked_fill(draws >= share, IGNORED)}


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("batch", "length", "share"), [(2, 16, 0.15), (3, 11, 0.6), (2, 9, 1.0)])
def test_loss_and_gradients_are_torchs(
    name: str, pipeline: str, batch: int, length: int, share: float
) -> None:
    model, step = exported(name)[0], step_of(name, pipeline)
    inputs = labelled(name, batch, length, share)
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    np.testing.assert_allclose(step.run(inputs)["loss"], loss.item(), rtol=1e-5)
    expected = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    largest = max(float(np.abs(g).max()) for g in expected.values())
    for parameter, gradient in expected.items():
        assert np.abs(step.gradients[parameter] - gradient).max() <= 1e-5 * largest, parameter


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", MODELS)
def test_nothing_labelled(name: str, pipeline: str) -> None:
    """Torch's loss is not a number then, and its gradients are zero; ONNX Runtime's own loss is zero."""
    step = step_of(name, pipeline)
    loss = step.run(labelled(name, 2, 7, 0.0))["loss"]
    assert loss == 0 if pipeline == "training-stock" else np.isnan(loss)
    assert all(not gradient.any() for gradient in step.gradients.values())


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_scores_are_there_for_who_asks(pipeline: str) -> None:
    inputs = labelled("bert-mlm", 2, 12, 0.3)
    with torch.no_grad():
        expected = exported("bert-mlm")[0](**inputs)
    step = step_of("bert-mlm", pipeline)
    for found in (step.run(inputs, ["loss", "logits"]), step.evaluate(inputs)):
        np.testing.assert_allclose(found["loss"], expected.loss, rtol=1e-5)
        np.testing.assert_allclose(found["logits"], expected.logits, atol=1e-5)


def test_the_verifier_agrees() -> None:
    graph = Pipeline.resolve("simplify-for-training").run(exported("bert-mlm")[1]).model
    inputs = {n: v.numpy() for n, v in labelled("bert-mlm", 2, 12, 0.3).items()}
    result = Pipeline.resolve("select-labelled").run(graph, [Verify("gradients", inputs=inputs)])
    assert result.changes == 1


@pytest.mark.native
@pytest.mark.parametrize("name", MODELS)
def test_the_finished_graph_needs_no_training_build(name: str) -> None:
    finished = Pipeline.resolve("training,insert-optimizer").run(exported(name)[1]).model
    assert not training_only(finished)
    TrainingStep(finished, threads=1, runtime="stock").run(labelled(name, 2, 8, 0.0))
