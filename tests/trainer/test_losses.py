"""Losses that torch computes from the graph's outputs: forward and backward are then two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from trainer_harness import PIPELINE, arguments, assert_same, both, rows, train

from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer


def test_label_smoothing(folder: Path) -> None:
    model = zoo.build("bert")
    args = arguments(folder, label_smoothing_factor=0.2, max_steps=8)
    stock, mine = both(model, args, rows(model, 20))
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)
    assert mine.trainer.bridge.counts == {"split": 8}


def test_loss_function_of_the_users(folder: Path) -> None:
    def focal(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        chosen = outputs.logits.log_softmax(-1).gather(-1, labels[:, None])
        loss: Tensor = -((1 - chosen.exp()) ** 2 * chosen).mean()
        return loss

    model = zoo.build("bert")
    args = arguments(folder, max_steps=6)
    stock, mine = both(model, args, rows(model, 20), compute_loss_func=focal)
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)
    assert mine.trainer.bridge.counts == {"split": 6}


class _Penalised:
    """Uses the model's own loss and its logits."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        outputs = model(**inputs)
        loss = outputs.loss + 0.1 * outputs.logits.square().mean()
        return (loss, outputs) if return_outputs else loss


def test_overridden_compute_loss(folder: Path) -> None:
    stock_kind = type("Stock", (_Penalised, transformers.Trainer), {})
    my_kind = type("Mine", (_Penalised, Trainer), {})
    model = zoo.build("bert")
    args = arguments(folder, max_steps=6)
    stock = train(stock_kind, model, args, rows(model, 20))
    mine = train(my_kind, model, args, rows(model, 20), fallback="error", pipeline=PIPELINE)
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)
    # The first step finds out that the logits are used; from then on each step is split from the start.
    assert mine.trainer.bridge.counts == {"step": 1, "split-loss": 5}


def test_second_backward_is_refused() -> None:
    from fuseline.engine.errors import FuselineError
    from fuseline.tools.trainer import CompileCache, Compiler, Settings, attach

    model = zoo.build("bert")
    attach(model, Compiler(Settings(pipeline=PIPELINE, cache=CompileCache.at(None))), "error")
    loss = model(**zoo.batch(model, 4, 8)).loss
    loss.backward(retain_graph=True)
    with pytest.raises(FuselineError, match="used up by an earlier backward"):
        loss.backward()
    with torch.no_grad():
        model.eval()
        assert torch.isfinite(model(**zoo.batch(model, 3, 5)).loss)
