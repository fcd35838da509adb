"""Every step of the stock Trainer, step by step: losses, gradient norms and final weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trainer_harness import arguments, assert_same, both, rows

from fuseline.exporters import zoo

slow = pytest.mark.slow

#: The bias of a softmax has no gradient but rounding; a larger epsilon keeps Adam from making steps of that.
ROUNDING = {"adam_epsilon": 1e-5}

PAIRS: list[Any] = [
    ("bert", {}),
    ("gpt2", {}),
    pytest.param("bert-mlm", {}, marks=slow),
    pytest.param("roberta", {}, marks=slow),
    pytest.param("bert-token", {}, marks=slow),
    pytest.param("bert-qa", ROUNDING, marks=slow),
    pytest.param("bloom", {}, marks=slow),
    pytest.param("t5", {}, marks=slow),
    pytest.param("vit", {}, marks=slow),
    pytest.param("llama", {}, marks=slow),
    pytest.param("distilbert", {}, marks=slow),
    pytest.param("bart", ROUNDING, marks=slow),
]


@pytest.mark.parametrize("name, settings", PAIRS)
def test_follows_the_stock_trainer(name: str, settings: dict[str, Any], folder: Path) -> None:
    model = zoo.build(name)
    data = rows(model, 82)  # the last batch is ragged
    for accumulation in (1, 4):
        args = arguments(folder, gradient_accumulation_steps=accumulation, **settings)
        stock, mine = both(model, args, data)
        assert_same(stock, mine, relative=1e-4, absolute=1e-4)
        assert stock.norms == pytest.approx(mine.norms, rel=1e-3)
        assert mine.trainer.bridge.counts["torch"] == 0


def test_whole_step_follows_it_too(folder: Path) -> None:
    model = zoo.build("bert")
    data = rows(model, 82)
    for accumulation in (1, 4):
        args = arguments(folder, gradient_accumulation_steps=accumulation)
        stock, mine = both(model, args, data, ours={"whole_step": True})
        assert_same(stock, mine, relative=1e-4, absolute=1e-4)
        assert stock.norms == pytest.approx(mine.norms, rel=1e-3)
        assert set(mine.trainer.bridge.counts) == {"native"}
