"""The complete training pipelines on exported models against torch: gradients, and losses over many steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.portability import training_only
from fuseline.engine.training.settings import OptimizerSettings
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.kernels import available
from fuseline.tools.campaigns import zoo

PIPELINES = ["training-stock", *(["training"] if available() else [])]
FAST = ["bert", "gpt2"]
SLOW = [
    "bert-mlm",
    "roberta",
    "llama",
    "t5",
    "bart",
    "vit",
    "bloom",
    "gpt-neox",
    "mixtral",
    "convnext",
    "resnet",
]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def exported(name: str) -> tuple[torch.nn.Module, Model]:
    model = zoo.build(name)
    return model, export(model, train=True, check=False)


def check_gradients(name: str, pipeline: str) -> None:
    model, graph = exported(name)
    step = TrainingStep(Pipeline.resolve(pipeline).run(graph).model, threads=1)
    for size, (batch, seq) in enumerate(((2, 16), (3, 11))):
        inputs = zoo.batch(model, batch=batch, seq=seq, seed=size)
        model.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        np.testing.assert_allclose(step.run(inputs)["loss"], loss.item(), rtol=1e-5)
        gradients = step.gradients
        expected = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
        # A gradient that is zero but for rounding has no scale of its own.
        floor = 1e-3 * max(float(np.abs(g).max()) for g in expected.values())
        for parameter, gradient in expected.items():
            scale = max(float(np.abs(gradient).max()), floor)
            assert np.abs(gradients[parameter] - gradient).max() <= 1e-4 * scale, parameter


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", FAST)
def test_gradients_equal_torchs(name: str, pipeline: str) -> None:
    check_gradients(name, pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", SLOW)
def test_gradients_of_more_architectures_equal_torchs(name: str, pipeline: str) -> None:
    check_gradients(name, pipeline)


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_hundred_steps_follow_torchs_losses(name: str) -> None:
    model, graph = exported(name)
    finished = Pipeline.resolve("training,insert-optimizer").run(graph).model
    step = TrainingStep(finished, threads=1, settings=OptimizerSettings(learning_rate=1e-3, max_norm=1.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for index in range(100):
        inputs = zoo.batch(model, batch=4, seq=12 + index % 5, seed=index % 10)
        loss = model(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        np.testing.assert_allclose(step.run(inputs)["loss"], loss.item(), rtol=1e-3)


@pytest.mark.native
def test_the_finished_graph_needs_no_training_build() -> None:
    _, graph = exported("bert")
    finished = Pipeline.resolve("training,insert-optimizer").run(graph).model
    assert not training_only(finished)
    TrainingStep(finished, threads=1, runtime="stock")
