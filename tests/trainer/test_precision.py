"""Mixed precision: rounded where it should be, scaled, skipped on overflow, and never silently ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from trainer_harness import PIPELINE, arguments, make, rows, train

from fuseline import kernels
from fuseline.engine import runtime
from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer

PRODUCT = """
<ir_version: 10, opset_import: ["" : 18]>
agraph (float[2,3] a, float[3,4] b) => (float[2,4] y) {
    y = MatMul(a, b)
}
"""


@pytest.mark.parametrize("to", ["bf16", "fp16"])
def test_operands_and_result_are_rounded(to: str) -> None:
    result = Pipeline.parse(f"mixed-precision{{to={to}}}").run(Model.from_text(PRODUCT))
    assert [n.op_type for n in result.model.graph].count("Cast") == 6
    chance = np.random.default_rng(0)
    a, b = (chance.standard_normal(shape).astype(np.float32) for shape in ((2, 3), (3, 4)))
    found = runtime.run(runtime.session(result.model), {"a": a, "b": b})["y"]
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}[to]
    rounded = [torch.from_numpy(x).to(low).float() for x in (a, b)]
    expected = (rounded[0] @ rounded[1]).to(low).float().numpy()
    np.testing.assert_array_equal(found, expected)
    assert Pipeline.parse(f"mixed-precision{{to={to}}}").run(result.model).changes == 0


def test_denied_nodes_stay() -> None:
    model = Model.from_text(PRODUCT)
    name = next(iter(model.graph)).name
    result = Pipeline.parse(f'mixed-precision{{deny="{name}"}}').run(model)
    assert result.changes == 0
    assert "is denied" in result.records[0].rejections[0].reason


def test_trainer_emulates_fp16_and_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = zoo.build("bert")
    data = rows(model, 20)
    ours = {"fallback": "error", "pipeline": PIPELINE}
    full = train(Trainer, model, arguments(folder, max_steps=5), data, **ours)
    with caplog.at_level("WARNING"):
        low = train(Trainer, model, arguments(folder, max_steps=5, fp16=True), data, **ours)
    assert "the numerics of mixed precision" in caplog.text
    assert low.losses != full.losses
    assert low.losses == pytest.approx(full.losses, rel=2e-2)
    assert all(w.dtype == torch.float32 for w in low.weights.values())


@pytest.mark.native
def test_trainer_multiplies_in_bf16(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As close to fp32 as the stock Trainer in bf16 is; the portable path gives the same on any processor."""
    monkeypatch.setattr(kernels, "multiplies_bf16", lambda: True)
    model = zoo.build("bert")
    data = rows(model, 20)
    ours = {"fallback": "error", "pipeline": PIPELINE}
    full = train(transformers.Trainer, model, arguments(folder, max_steps=5), data)
    stock = train(transformers.Trainer, model, arguments(folder, max_steps=5, bf16=True), data)
    low = train(Trainer, model, arguments(folder, max_steps=5, bf16=True), data, **ours)
    assert low.losses != full.losses
    distance = np.abs(np.array(low.losses) - full.losses).max()
    assert distance <= max(np.abs(np.array(stock.losses) - full.losses).max(), 1e-3)
    assert all(w.dtype == torch.float32 for w in low.weights.values())


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.skipif(not kernels.multiplies_bf16(), reason="no products in bf16")
@pytest.mark.parametrize("whole_step", [False, True])
def test_two_hundred_steps_in_bf16_stay_as_near_as_torchs(folder: Path, whole_step: bool) -> None:
    """Root mean squares over all steps: of the distance to fp32, and between the two ways of bf16."""
    model = zoo.build("bert")
    data = rows(model, 64)
    long: dict[str, Any] = {"max_steps": 200, "learning_rate": 1e-3}
    full = train(transformers.Trainer, model, arguments(folder, **long), data)
    stock = train(transformers.Trainer, model, arguments(folder, bf16=True, **long), data)
    ours = train(
        Trainer, model, arguments(folder, bf16=True, **long), data, fallback="error", whole_step=whole_step
    )
    assert len(ours.losses) == 200
    exact, theirs, found = (np.array(run.losses) for run in (full, stock, ours))
    own = np.sqrt(np.mean((theirs - exact) ** 2))
    assert 0 < np.sqrt(np.mean((found - exact) ** 2)) <= own
    assert np.sqrt(np.mean((found - theirs) ** 2)) <= own


def test_trainer_without_bf16_says_so_and_computes_in_fp32(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "multiplies_bf16", lambda: False)
    model = zoo.build("bert")
    data = rows(model, 8)
    ours = {"fallback": "error", "pipeline": PIPELINE}
    full = train(Trainer, model, arguments(folder, max_steps=2), data, **ours)
    with caplog.at_level("WARNING"):
        low = train(Trainer, model, arguments(folder, max_steps=2, bf16=True), data, **ours)
    assert "this processor has no instruction for products in it" in caplog.text
    assert low.losses == full.losses


@pytest.mark.parametrize(
    "optim",
    ["adamw_torch", "adamw_torch_fused", pytest.param("adamw_fuseline", marks=pytest.mark.native)],
)
def test_overflow_skips_the_step_and_lowers_the_scale(optim: str, folder: Path) -> None:
    model = zoo.build("bert")
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    settings = {"fp16": True, "optim": optim, "warmup_steps": 0}
    data = rows(model, 8)
    trainer: Any = make(model, arguments(folder, max_steps=1, **settings), train_dataset=data)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    trainer.train()
    assert trainer.accelerator.scaler.get_scale() == 2.0**39
    assert all(torch.equal(before[n], p) for n, p in model.named_parameters())

    trainer = make(model, arguments(folder, max_steps=25, **settings), train_dataset=data)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    trainer.train()
    # It fell until the gradients fitted, and from then on the model was trained.
    assert 2.0**15 <= trainer.accelerator.scaler.get_scale() < 2.0**39
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert not torch.equal(before["classifier.weight"], model.classifier.weight)


def test_fp16_whole_step_is_refused(folder: Path) -> None:
    model = zoo.build("bert")
    with pytest.raises(FuselineError, match="fp16 needs a loss scale that changes from step to step"):
        make(model, arguments(folder, fp16=True), whole_step=True)
