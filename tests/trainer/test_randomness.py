"""Forwards that draw random numbers train on the graph, by the seed, and evaluate as torch does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from trainer_harness import arguments, rows, train

from fuseline.tools.campaigns import zoo
from fuseline.tools.campaigns.rows import Rows
from fuseline.tools.trainer import Trainer

CHECKED = {"check": True, "cache_dir": "off", "fallback": "error"}


class Coder(nn.Module):
    """A small variational autoencoder; `always` draws in evaluation, too."""

    def __init__(self, always: bool = False) -> None:
        super().__init__()
        self.mean, self.spread, self.back = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 6)
        self.always = always

    def forward(self, x: Tensor) -> Any:
        mean, spread = self.mean(x), self.spread(x)
        code = mean
        if self.training or self.always:
            code = mean + torch.randn_like(spread) * torch.exp(spread)
        made = self.back(code)
        return {"loss": (made - x).pow(2).mean() + mean.pow(2).mean(), "made": made}


def points() -> Rows:
    return Rows({"x": torch.randn(16, 6, generator=torch.Generator().manual_seed(3))})


def test_a_sampling_forward_trains_by_its_seed(folder: Path) -> None:
    torch.manual_seed(0)
    model = Coder()
    args = {"max_steps": 4, "train_sampling_strategy": "sequential"}
    runs = [train(Trainer, model, arguments(folder, seed=s, **args), points(), **CHECKED) for s in (1, 1, 2)]
    assert runs[0].losses == runs[1].losses
    assert runs[0].losses[0] != runs[2].losses[0]
    assert all(run.trainer.report().in_torch == 0 for run in runs)


def test_what_draws_in_evaluation_evaluates_in_torch(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = {**CHECKED, "fallback": "torch"}
    with caplog.at_level("WARNING"):
        run = train(Trainer, Coder(True), arguments(folder, max_steps=2), points(), **chosen)
        run.trainer.evaluate(points())
    assert dict(run.trainer.bridge.counts) == {"loss": 2, "torch": 4}
    assert "Coder runs in torch: it draws random numbers in evaluation" in caplog.messages


def test_neftune_is_on_the_graph(folder: Path) -> None:
    model = zoo.build("bert", num_hidden_layers=1)
    losses = []
    for alpha in (None, 20.0):
        args = arguments(folder, max_steps=2, neftune_noise_alpha=alpha)
        run = train(Trainer, model, args, rows(model, 8), **CHECKED)
        assert run.trainer.report().in_torch == 0
        losses.append(run.losses[0])
    assert losses[0] != losses[1]
