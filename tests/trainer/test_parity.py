"""Every step of the stock Trainer, step by step: losses, gradient norms and final weights.

Twenty steps with warm-up, weight decay and clipping, alone and with accumulation. The data give a ragged last
batch, and with accumulation a last update of fewer batches than the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from trainer_harness import FREE, PIPELINE, Record, arguments, assert_same, both, rows, train

from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer

slow = pytest.mark.slow
ROWS = 74

PAIRS = ("bert", "bert-qa", "bert-mlm", "gpt2", "t5", "vit")
SLOW_PAIRS = ("roberta", "bert-token", "bloom", "llama", "distilbert", "bart")
#: One for each way in which a loss is counted over several batches; one batch a step is the easier case.
ACCUMULATED = ("bert", "bert-mlm", "gpt2", "t5")


def _cases() -> Iterator[Any]:
    for name in (*PAIRS, *SLOW_PAIRS):
        yield pytest.param(name, 1, marks=slow if name in (*SLOW_PAIRS, *ACCUMULATED) else ())
        yield pytest.param(name, 4, marks=() if name in ACCUMULATED else slow)


#: Where Adam makes whole steps out of rounding.
DRIFTING = ("bert-qa",)


@pytest.mark.parametrize(("name", "accumulation"), _cases())
def test_follows_the_stock_trainer(name: str, accumulation: int, folder: Path) -> None:
    model = zoo.build(name)
    data = rows(model, ROWS)
    args = arguments(folder, gradient_accumulation_steps=accumulation)
    stock = train(transformers.Trainer, model, args, data)
    for whole_step, way in ((False, "loss"), (True, "native")):
        ours = {"fallback": "error", "pipeline": PIPELINE, "whole_step": whole_step}
        mine = train(Trainer, model, args, data, **ours)
        _assert_parity(stock, mine, steps=20, free=FREE[name] if name in DRIFTING else ())
        assert set(mine.trainer.bridge.counts) == {way}


@pytest.mark.native
@pytest.mark.parametrize(
    "name", ["bert", pytest.param("bert-mlm", marks=slow), pytest.param("gpt2", marks=slow)]
)
def test_follows_the_stock_trainer_without_computing_padding(name: str, folder: Path) -> None:
    model = zoo.build(name)
    data = rows(model, 32, 12)
    for row, mask in enumerate(data.batch["attention_mask"]):
        mask[:] = torch.arange(12) < 3 + row % 10
    args = arguments(folder, max_steps=8)
    stock = train(transformers.Trainer, model, args, data)
    for whole_step, way in ((False, "loss"), (True, "native")):
        ours = {"fallback": "error", "pipeline": "training", "whole_step": whole_step}
        mine = train(Trainer, model, args, data, cache_dir="off", **ours)
        _assert_parity(stock, mine, steps=8, free=())
        changes = {r.name: r.changes for r in mine.trainer.compiler.records[way]}
        assert changes["eliminate-padding"] > 0
        assert set(mine.trainer.bridge.counts) == {way}


def test_an_epsilon_above_rounding_leaves_nothing_free(folder: Path) -> None:
    model = zoo.build("bert-qa")
    stock, mine = both(model, arguments(folder, adam_epsilon=1e-5), rows(model, ROWS))
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)


def test_the_loss_does_not_depend_on_free_parameters() -> None:
    for name, free in FREE.items():
        model = zoo.build(name).double()
        batch = zoo.batch(model, 8, 8)
        loss = model(**batch).loss
        loss.backward()
        gradients = {n: float(p.grad.abs().max()) for n, p in model.named_parameters() if p.grad is not None}
        with torch.no_grad():
            for parameter in free:
                assert gradients[parameter] < 1e-14 < 1e-3 < max(gradients.values()), parameter
                model.get_parameter(parameter).add_(torch.randn(()).double())
            assert float(model(**batch).loss) == pytest.approx(float(loss), rel=1e-12)


def _assert_parity(stock: Record, mine: Record, *, steps: int, free: Sequence[str]) -> None:
    assert stock.trainer.state.global_step == mine.trainer.state.global_step == steps
    assert_same(stock, mine, relative=1e-4, absolute=1e-4, free=free)
    assert len(stock.norms) == steps
    assert stock.norms == pytest.approx(mine.norms, rel=1e-3)
    assert max(stock.norms) > stock.trainer.args.max_grad_norm, "nothing was clipped"
