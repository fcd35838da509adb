"""Training loops of one's own over a model that is attached to its graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from trainer_harness import PIPELINE, rows

from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import CompileCache, Compiler, Settings, attach

STEPS = 6


def _losses(model: Any, *, accumulation: int) -> list[float]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    prepared, stepper, batches = accelerator.prepare(
        model, optimizer, DataLoader(rows(model, 4 * STEPS), batch_size=4)
    )
    losses = []
    for batch in batches:
        with accelerator.accumulate(prepared):
            loss = prepared(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(prepared.parameters(), 0.5)
            stepper.step()
            stepper.zero_grad()
            losses.append(float(loss))
    return losses


@pytest.mark.parametrize("accumulation", [1, 3])
def test_accelerate_loop_follows_torch(accumulation: int) -> None:
    expected = _losses(zoo.build("bert"), accumulation=accumulation)
    model = zoo.build("bert")
    bridge = attach(model, Compiler(Settings(pipeline=PIPELINE, cache=CompileCache.at(None))), "error")
    assert _losses(model, accumulation=accumulation) == pytest.approx(expected, rel=1e-4)
    assert dict(bridge.counts) == {"step": STEPS}
    bridge.detach()
    assert "forward" not in vars(model)
