"""Training exports through the training pipeline: torch's gradients, and dropout that is dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fuseline.engine.model import Model
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.exporters.planning import make_plan
from fuseline.exporters.sources import resolve
from fuseline.tools.gradient_check import differentiated, gradient_report


def test_gradients_of_bert_equal_torch(bert: tuple[Any, Model]) -> None:
    module, model = bert
    report = gradient_report(model, make_plan(resolve(module), train=True))
    assert report.ok
    assert len(report.checks) == 3


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(100))
        self.drop = nn.Dropout(0.1)

    def forward(self, features: Tensor) -> Tensor:
        return self.drop(features * self.scale)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def step() -> TrainingStep:
    example = {"features": torch.ones(2, 100)}
    model = export(Dropping(), train=True, example_inputs=example, loss=lambda output: output.sum())
    return TrainingStep(differentiated(model), threads=1)


def test_dropout_keeps_its_rate_and_scale(step: TrainingStep) -> None:
    batch = {"features": np.ones((1000, 100), np.float32)}
    output = step.run(batch, ["output"], seed=1)["output"]
    kept = output[output != 0]
    np.testing.assert_allclose(kept, 1 / 0.9, rtol=1e-6)
    # 100,000 draws: the rate is within five standard deviations of 0.9.
    assert kept.size / output.size == pytest.approx(0.9, abs=0.005)
    np.testing.assert_allclose(step.gradients["scale"], output.sum(axis=0), rtol=1e-5)


def test_dropout_follows_its_seed(step: TrainingStep) -> None:
    batch = {"features": np.ones((8, 100), np.float32)}
    one, again, other = (step.run(batch, ["output"], seed=seed)["output"].copy() for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
