"""Checkpoints: complete or ignored, and exact to resume from."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_harness import arguments, make, rows

from fuseline.engine.errors import FuselineError
from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer.checkpoints import MARK, last_complete


@pytest.mark.parametrize("whole_step", [False, True])
def test_resuming_is_exact_with_dropout(folder: Path, whole_step: bool) -> None:
    model = zoo.build("bert", dropout=0.1)
    data = rows(model, 22)
    settings: dict[str, Any] = {"max_steps": 9, "save_strategy": "steps", "save_steps": 3}

    def trainer(place: Path, **changes: Any) -> Any:
        args = arguments(place, **{**settings, **changes})
        return make(copy.deepcopy(model), args, train_dataset=data, whole_step=whole_step)

    whole = trainer(folder / "whole")
    whole.train()
    shutil.copytree(folder / "whole", folder / "cut")
    # A process died while it wrote the last checkpoint.
    (folder / "cut" / "checkpoint-9" / MARK).touch()
    assert last_complete(folder / "cut") == folder / "cut" / "checkpoint-6"
    resumed = trainer(folder / "cut")
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 9
    for (name, expected), found in zip(
        whole.model.named_parameters(), resumed.model.parameters(), strict=True
    ):
        assert torch.equal(expected, found), name


def test_incomplete_checkpoint_is_refused_by_name(folder: Path) -> None:
    model = zoo.build("bert")
    trainer = make(model, arguments(folder), train_dataset=rows(model, 8))
    (folder / "checkpoint-3").mkdir()
    with pytest.raises(FuselineError, match=r"Can't find a valid checkpoint at .*checkpoint-3"):
        trainer.train(resume_from_checkpoint=str(folder / "checkpoint-3"))
    with pytest.raises(FuselineError, match="No valid checkpoint found in output directory"):
        trainer.train(resume_from_checkpoint=True)
