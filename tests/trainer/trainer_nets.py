"""Plain modules that compile quickly, and a way to use both trainers alike."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from trainer_harness import Record, arguments, assert_same, recording

from fuseline.tools.campaigns.rows import Rows
from fuseline.tools.trainer import Trainer

MODES = pytest.mark.parametrize("whole_step", [False, True], ids=["ordinary", "whole"])
#: The same for what takes long to compile: `make test-slow` has the second.
SLOW_MODES = pytest.mark.parametrize(
    "whole_step", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["ordinary", "whole"]
)


class Net(nn.Module):
    """Two layers with something between them."""

    def __init__(self, between: Callable[[Net, Tensor], Tensor] = lambda net, hidden: hidden) -> None:
        super().__init__()
        self.first, self.second, self.between = nn.Linear(6, 6), nn.Linear(6, 3), between

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.second(torch.tanh(self.between(self, self.first(x))))
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def points(count: int = 16) -> Rows:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 6, generator=generator)
    return Rows({"x": x, "labels": torch.randint(0, 3, (count,), generator=generator)})


def seeded(*args: Any, kind: type[Net] = Net) -> Net:
    torch.manual_seed(1)
    return kind(*args)


def hooked_tensor(net: Net, hidden: Tensor) -> Tensor:
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: 3 * gradient)
    return hidden


def on_graph(record: Record) -> bool:
    return bool(record.trainer.report().in_torch == 0)


class Meddling(transformers.TrainerCallback):
    """Does something to the model and its optimizer on the way."""

    def __init__(self, how: Callable[[Any, Any], Any]) -> None:
        self.how = how

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 1:
            self.how(kwargs["model"], kwargs["optimizer"])


def used(model: nn.Module, folder: Path, whole_step: bool, use: Callable[[Any], None], **changes: Any) -> Any:
    """Our trainer after both were used in this way; their losses and weights agree."""
    records, data = [], points()
    for kind, chosen in ((transformers.Trainer, {}), (Trainer, {"whole_step": whole_step})):
        held = copy.deepcopy(model)
        args = arguments(folder, **{"max_steps": 4, **changes})
        trainer = recording(kind)(held, args, train_dataset=data, eval_dataset=data, **chosen)
        use(trainer)
        trainer.record.weights = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
        records.append(trainer.record)
    assert_same(*records, relative=1e-5, absolute=2e-5)
    return trainer
