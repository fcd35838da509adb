"""Schedules, logs and callbacks: the whole log of a run is the stock Trainer's, entry by entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers
from trainer_harness import PIPELINE, arguments, rows, train

from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer

#: Entries that hold times.
CLOCKS = ("runtime", "per_second", "total_flos")


class Events(transformers.TrainerCallback):
    """Writes down every event, its step, and what the callback was given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, tuple[str, ...]]] = []


def _listen(event: str) -> Any:
    def note(self: Events, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        given = tuple(sorted(k for k, v in kwargs.items() if v is not None))
        self.seen.append((event, state.global_step, given))

    return note


class EveryEvent(Events):
    """What happens while gradients are there, too; in a whole step they are not."""


for _event in [name for name in vars(transformers.TrainerCallback) if name.startswith("on_")]:
    setattr(EveryEvent if _event.endswith("optimizer_step") else Events, _event, _listen(_event))

SCHEDULES: list[dict[str, Any]] = [
    {"lr_scheduler_type": "cosine", "warmup_steps": 0.25},
    {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 2},
    {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"power": 2.0}},
    {"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {"num_cycles": 2}},
    {"lr_scheduler_type": "inverse_sqrt"},
    {
        "lr_scheduler_type": "warmup_stable_decay",
        "lr_scheduler_kwargs": {"num_decay_steps": 3, "num_stable_steps": 2},
    },
    {"lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"patience": 0}},
]


@pytest.mark.parametrize("whole_step", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s["lr_scheduler_type"])
def test_logs_and_events_are_the_stock_ones(schedule: dict[str, Any], whole_step: bool, folder: Path) -> None:
    model = zoo.build("bert")
    settings = {"max_steps": 8, "warmup_steps": 2, "eval_strategy": "steps", "eval_steps": 2, **schedule}
    logs, events = [], []
    ours = {"fallback": "error", "pipeline": PIPELINE, "whole_step": whole_step}
    for kind, extra in ((transformers.Trainer, {}), (Trainer, ours)):
        listener = Events() if whole_step else EveryEvent()
        record = train(
            kind,
            model,
            arguments(folder, **settings),
            rows(model, 18),
            eval_dataset=rows(model, 6, seed=3),
            callbacks=[listener],
            **extra,
        )
        logs.append([_without_clocks(entry) for entry in record.trainer.state.log_history])
        events.append(listener.seen)
    assert events[0] == events[1]
    assert len(logs[0]) == len(logs[1])
    for expected, found in zip(*logs, strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    rates = {entry["learning_rate"] for entry in logs[0] if "learning_rate" in entry}
    assert len(rates) > 1, "a schedule that does nothing shows nothing"


def _without_clocks(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if not any(clock in k for clock in CLOCKS)}
