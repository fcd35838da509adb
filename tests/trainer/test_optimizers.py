"""Every `optim=` that works here, against the stock Trainer with the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from trainer_harness import FREE, PIPELINE, arguments, assert_same, rows, train

from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer

#: Name → the class that it makes; these need no further package.
PLAIN = {
    "adamw_torch": "AdamW",
    "adamw_torch_fused": "AdamW",
    "adafactor": "Adafactor",
    "sgd": "SGD",
    "adagrad": "Adagrad",
    "rmsprop": "RMSprop",
}


@pytest.mark.parametrize("optim", PLAIN)
def test_follows_the_stock_trainer(optim: str, folder: Path) -> None:
    stock, mine = _both(folder, optim, optim)
    # Those that divide by the gradient's size make whole steps out of rounding.
    assert_same(stock, mine, relative=1e-4, absolute=1e-4, free=FREE["bert"])
    assert type(mine.trainer.optimizer.optimizer).__name__ == PLAIN[optim]


@pytest.mark.native
def test_native_adamw_is_torchs(folder: Path) -> None:
    stock, mine = _both(folder, "adamw_torch", "adamw_fuseline")
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)
    inner = mine.trainer.optimizer.optimizer
    assert type(inner).__name__ == "FusedAdamW"
    expected, found = stock.trainer.optimizer.optimizer.state_dict(), inner.state_dict()
    assert found["state"].keys() == expected["state"].keys()
    for index, moments in expected["state"].items():
        assert found["state"][index].keys() == moments.keys()
        for name, tensor in moments.items():
            torch.testing.assert_close(found["state"][index][name], tensor, rtol=1e-3, atol=1e-6)
    # Torch's own class goes on from this state, and ours from torch's.
    parameters = [p for g in inner.param_groups for p in g["params"]]
    groups = [{"params": g["params"], "weight_decay": g["weight_decay"]} for g in inner.param_groups]
    assert parameters
    torch.optim.AdamW(groups).load_state_dict(found)
    inner.load_state_dict(expected)


def test_optimizer_and_schedule_of_the_users(folder: Path) -> None:
    model = zoo.build("bert")

    def run(kind: type[Any], **extra: Any) -> Any:
        class WithOwn(kind):  # type: ignore[misc]
            def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
                self.optimizer = torch.optim.NAdam(self.model.parameters(), lr=1e-3)
                self.lr_scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)

        return train(WithOwn, model, arguments(folder, max_steps=6), rows(model, 20), **extra)

    stock, mine = run(transformers.Trainer), run(Trainer, fallback="error", pipeline=PIPELINE)
    assert_same(stock, mine, relative=1e-4, absolute=1e-4, free=FREE["bert"])


def _both(folder: Path, stock_optim: str, optim: str) -> tuple[Any, Any]:
    model = zoo.build("bert")
    data = rows(model, 20)
    stock = train(transformers.Trainer, model, arguments(folder, optim=stock_optim, max_steps=6), data)
    args = arguments(folder, optim=optim, max_steps=6)
    return stock, train(Trainer, model, args, data, fallback="error", pipeline=PIPELINE)
