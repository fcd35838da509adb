"""Dropout of 0.1 through the training pipelines: its rate, its scale, its seed, and torch's statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.kernels import available
from fuseline.tools.campaigns import zoo
from fuseline.tools.gradient_check import differentiated

PIPELINES = ["training-stock", *(["training"] if available() else [])]
KEPT = 0.9
#: How far a mean may lie from what it should be, in its own standard deviations.
DEVIATIONS = 5


class Dropping(nn.Module):
    """What comes out shows the mask: all that goes in is one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(100))
        self.drop = nn.Dropout(1 - KEPT)

    def forward(self, features: Tensor) -> Tensor:
        return self.drop(features * self.scale)  # type: ignore[no-any-return]


class Attending(nn.Module):
    """Attention that shows its dropped weights: zero queries weigh evenly, the values are unit vectors."""

    heads, length = 4, 32

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(self.length, self.length))
        self.key = nn.Parameter(torch.eye(self.length))

    def forward(self, features: Tensor) -> Tensor:
        batch = features.shape[0]

        def split(x: Tensor) -> Tensor:
            return x.reshape(batch, self.length, self.heads, self.length).transpose(1, 2)

        query, key = split(features @ _four(self.query)), split(features @ _four(self.key))
        mixed = F.scaled_dot_product_attention(query, key, split(features), dropout_p=1 - KEPT)
        return mixed.transpose(1, 2).reshape(batch, self.length, self.heads * self.length)


def _four(weight: Tensor) -> Tensor:
    return torch.block_diag(weight, weight, weight, weight)


def units(batch: int) -> Tensor:
    """Row s holds, for each head, the unit vector e_s."""
    return torch.eye(Attending.length).repeat(1, Attending.heads).expand(batch, -1, -1).contiguous()


def _step(module: nn.Module, example: Tensor, pipeline: str) -> TrainingStep:
    inputs = {"features": example}
    model = export(module, train=True, example_inputs=inputs, loss=lambda output: output.sum(), check=False)
    return TrainingStep(differentiated(model, pipeline), threads=1)


def assert_rate(mask: np.ndarray) -> None:
    """As many are kept as KEPT says, over all and at every index of every axis: no row is favoured."""
    spread = (KEPT * (1 - KEPT)) ** 0.5
    assert abs(mask.mean() - KEPT) <= DEVIATIONS * spread / mask.size**0.5
    for axis, length in enumerate(mask.shape):
        means = np.moveaxis(mask, axis, 0).reshape(length, -1).mean(axis=1)
        assert np.abs(means - KEPT).max() <= DEVIATIONS * spread / (mask.size / length) ** 0.5


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_rate_scale_gradient_and_seed(pipeline: str) -> None:
    step = _step(Dropping(), torch.ones(2, 100), pipeline)
    batch = {"features": np.ones((1000, 100), np.float32)}
    output = step.run(batch, ["output"], seed=1)["output"].copy()
    np.testing.assert_allclose(output[output != 0], 1 / KEPT, rtol=1e-6)
    assert_rate(output != 0)
    np.testing.assert_allclose(step.gradients["scale"], output.sum(axis=0), rtol=1e-5)
    # ONNX Runtime's own generator makes similar masks of neighbouring seeds; a step draws them far apart.
    seeds = (1, 1_203_771_539)
    again, other = (step.run(batch, ["output"], seed=seed)["output"].copy() for seed in seeds)
    np.testing.assert_array_equal(output, again)
    # Two seeds agree where both keep or both drop, as independent masks do.
    agreement = ((output != 0) == (other != 0)).mean()
    assert agreement == pytest.approx(KEPT**2 + (1 - KEPT) ** 2, abs=0.01)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_attention_weights_are_dropped_at_the_rate(pipeline: str) -> None:
    step = _step(Attending(), units(3), pipeline)
    fused = any(n.op_type == "FusedAttention" for n in step.model.nodes())
    assert fused == (pipeline == "training")
    batch = {"features": units(24).numpy()}
    weights = step.run(batch, ["output"], seed=5)["output"].copy()
    np.testing.assert_allclose(weights[weights != 0], 1 / (KEPT * Attending.length), rtol=1e-5)
    shape = (24, Attending.length, Attending.heads, Attending.length)
    mask = (weights != 0).reshape(shape)
    assert_rate(mask)
    # Each head and each row of the batch has a mask of its own.
    assert not np.array_equal(mask[:, :, 0], mask[:, :, 1])
    assert not np.array_equal(mask[0], mask[1])
    np.testing.assert_array_equal(weights, step.run(batch, ["output"], seed=5)["output"])
    assert not np.array_equal(weights, step.run(batch, ["output"], seed=6)["output"])


def _torch_losses(module: Any, batch: dict[str, Tensor], draws: int) -> np.ndarray:
    torch.manual_seed(0)
    with torch.no_grad():
        return np.array([module(**batch).loss.item() for _ in range(draws)])


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize(("name", "attention"), [("bert", "eager"), ("gpt2", "sdpa")])
def test_losses_are_spread_as_torchs(name: str, attention: str, pipeline: str) -> None:
    module = zoo.build(name, dropout=1 - KEPT, attention=attention, initializer_range=0.2)
    step = TrainingStep(differentiated(export(module, train=True, check=False), pipeline), threads=1)
    batch, draws = zoo.batch(module, 4, 12), 400
    found = np.array([float(step.run(batch, seed=seed)["loss"]) for seed in range(draws)])
    expected = _torch_losses(module, batch, draws)
    error = ((found.var() + expected.var()) / draws) ** 0.5
    assert abs(found.mean() - expected.mean()) <= DEVIATIONS * error
    # The standard deviation of a standard deviation of n draws is about 1/√(2n) of it: 3.5 % of each here.
    assert found.std() / expected.std() == pytest.approx(1, abs=DEVIATIONS * 0.05)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_seed_gives_the_same_gradients_in_a_new_session(pipeline: str) -> None:
    module = zoo.build("bert", dropout=1 - KEPT, attention="sdpa")
    model = differentiated(export(module, train=True, check=False), pipeline)
    batch = zoo.batch(module, 3, 10)

    def gradients(seed: int, optimize: str) -> dict[str, np.ndarray]:
        step = TrainingStep(model, threads=1, optimize=optimize)
        step.run(batch, seed=seed)
        return {name: value.copy() for name, value in step.gradients.items()}

    one, again, other = gradients(7, "all"), gradients(7, "all"), gradients(8, "all")
    for name, value in one.items():
        np.testing.assert_array_equal(value, again[name])
    assert any(not np.array_equal(value, other[name]) for name, value in one.items())
