"""A budget of memory changes what is kept, never what is computed; what cannot fit is said before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_harness import PIPELINE, arguments, recording, rows

from fuseline.engine.errors import FuselineError
from fuseline.engine.memory.planning import OverBudgetError
from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer
from fuseline.tools.trainer.budget import rounded_up

pytestmark = pytest.mark.native


def _trained(folder: Path, *, lengths: tuple[int, ...] = (64,), **changes: Any) -> Any:
    torch.manual_seed(0)
    model = zoo.build("bert")
    trainer = recording(Trainer)(
        model,
        arguments(folder, max_steps=2 * len(lengths), per_device_train_batch_size=4),
        train_dataset=rows(model, 8, lengths[0]),
        pipeline=PIPELINE,
        cache_dir="off",
        **changes,
    )
    batches = [rows(model, 4, length, seed=length) for length in lengths for _ in range(2)]
    trainer.get_train_dataloader = lambda: [
        trainer.data_collator([batch[i] for i in range(4)]) for batch in batches
    ]
    trainer.train()
    return trainer


def test_a_budget_changes_nothing_but_memory(tmp_path: Path) -> None:
    lengths = (64, 100, 61)
    free = _trained(tmp_path / "free", lengths=lengths)
    kept = _trained(tmp_path / "kept", lengths=lengths, memory_budget=0.9)
    assert kept.record.losses == free.record.losses
    for name, weight in free.model.state_dict().items():
        assert torch.equal(weight, kept.model.state_dict()[name]), name
    report = kept.report()
    assert report.in_torch == 0
    assert len(report.memory) == 2, "61 and 64 tokens share a plan"
    assert {plan.name for plan in report.memory} == {"recompute layers"}
    assert "MB at most" in str(report)


def test_a_fraction_is_of_the_largest_batch_so_far(tmp_path: Path) -> None:
    """By itself a batch of three tokens has hardly anything that a plan could save."""
    trainer = _trained(tmp_path, lengths=(64, 3), memory_budget=0.9)
    assert len(trainer.report().memory) == 2
    assert trainer.report().in_torch == 0


def test_what_cannot_fit_is_an_error_before_it_runs(tmp_path: Path) -> None:
    with pytest.raises(OverBudgetError, match="the smallest reachable is"):
        _trained(tmp_path, memory_budget="1KB")
    with pytest.raises(FuselineError, match="'two' is no amount of memory"):
        _trained(tmp_path, memory_budget="two")


def test_an_optimizer_in_the_graph_makes_way_for_a_budget(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = _trained(tmp_path, memory_budget=0.9, whole_step=True)
    assert trainer.bridge.counts["native"] == 0
    assert trainer.bridge.counts["loss"] == 2
    assert "a memory budget is kept by steps without the optimizer" in caplog.text


def test_ranges_of_sizes_are_few_and_never_smaller() -> None:
    sizes = range(1, 513)
    assert all(size <= rounded_up(size) <= 1.25 * size for size in sizes)
    assert len({rounded_up(size) for size in sizes}) == 32
