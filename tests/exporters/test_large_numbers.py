"""Losses of scores far from 0, and at 0, where a formula overflows or has no gradient and torch's has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fuseline
from fuseline import Pipeline, TrainingStep
from fuseline.engine.runtime import run, session

Loss = Callable[[Tensor, Tensor], Tensor]

LOSSES: dict[str, Loss] = {
    "binary cross entropy": lambda h, y: F.binary_cross_entropy_with_logits(h, y),
    "weighted binary cross entropy": lambda h, y: F.binary_cross_entropy_with_logits(
        h, y, pos_weight=torch.tensor([1.0, 2.0, 3.0])
    ),
    "many labels": lambda h, y: F.multilabel_soft_margin_loss(h, (y > 0.5).float()),
    "log sigmoid": lambda h, y: (F.logsigmoid(h) * y).sum(),
    "logarithm of a sigmoid": lambda h, y: (h.clamp(min=-80).sigmoid().log() * y).sum(),
    "log add": lambda h, y: torch.logaddexp(h, 3 * y).sum(),
    "log add of equals": lambda h, y: torch.logaddexp(h, h).sum(),
    "log add of nothing": lambda h, y: torch.logaddexp(h, torch.full_like(y, -torch.inf)).sum(),
    "log add, base 2": lambda h, y: torch.logaddexp2(h, 3 * y).sum(),
    "cumulative": lambda h, y: (torch.logcumsumexp(h, 0) * y).sum() + torch.logcumsumexp(h, 1).sum(),
}

AT_ZERO: dict[str, Loss] = {
    "norm of threes": lambda h, y: (torch.linalg.vector_norm(h, ord=3, dim=1) * y[:, 0]).sum(),
    "norm of halves": lambda h, y: torch.linalg.vector_norm(h, ord=0.5, dim=1, keepdim=True).sum(),
    "norm of all": lambda h, y: torch.linalg.vector_norm(h) + torch.linalg.vector_norm(h, ord=1.5),
    "sinc": lambda h, y: (torch.sinc(h) * y).sum(),
    "powers": lambda h, y: (h**0 * y + h ** torch.arange(3.0)).sum(),
}


def _assert_like_torch(loss: Loss, scale: float, bias: bool = True) -> None:
    torch.manual_seed(0)
    module = nn.Linear(4, 3, bias=bias)
    example = {"input": torch.randn(6, 4), "y": torch.rand(6, 3)}
    model = fuseline.export(module, example_inputs=example, loss=loss, train=True)
    step = TrainingStep(Pipeline.resolve("training").run(model).model)
    batch = {"input": torch.randn(5, 4) * scale, "y": torch.rand(5, 3)}
    expected = loss(module(batch["input"]), batch["y"])
    expected.backward()
    made = step.run({name: value.numpy() for name, value in batch.items()})
    np.testing.assert_allclose(made["loss"], expected.detach().numpy(), rtol=1e-5)
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(step.gradients[name], parameter.grad.numpy(), rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.native
@pytest.mark.parametrize("scale", [1.0, 150.0])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_as_torch(loss: Loss, scale: float) -> None:
    _assert_like_torch(loss, scale)


@pytest.mark.native
@pytest.mark.parametrize("scale", [0.0, 1.0])
@pytest.mark.parametrize("loss", AT_ZERO.values(), ids=AT_ZERO)
def test_as_torch_at_zero(loss: Loss, scale: float) -> None:
    _assert_like_torch(loss, scale, bias=False)


class _Scores(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.logsigmoid(x) + torch.logaddexp(x, 2 * x)


def test_in_double() -> None:
    x = torch.randn(5, 4, dtype=torch.float64) * 300
    model = fuseline.export(_Scores(), example_inputs={"x": x})
    made = run(session(model), {"x": x.numpy()})
    np.testing.assert_allclose(made["output"], _Scores()(x).numpy(), rtol=1e-12)


@pytest.mark.native
def test_probabilities_of_0_and_1() -> None:
    def loss(h: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(h.clamp(0, 1), (y > 0.5).float(), weight=y)

    for scale in (1.0, 150.0):
        _assert_like_torch(loss, scale)
