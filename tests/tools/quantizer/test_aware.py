"""Training on grids: gradients as in torch, and an integer graph that computes what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from fuseline.engine import runtime
from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.tools.quantizer.aware import GridLinear, make_aware
from fuseline.tools.trainer import Trainer, TrainingArguments


def _data(count: int) -> list[dict[str, Any]]:
    chance = np.random.default_rng(0)
    rows = chance.integers(1, 50, (count, 8))
    return [
        {
            "input_ids": r.tolist(),
            "attention_mask": [1] * 8,
            "token_type_ids": [0] * 8,
            "labels": int(r[0] < 25),
        }
        for r in rows
    ]


def _collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {k: torch.tensor([r[k] for r in rows]) for k in rows[0]}


def _model() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=50,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForSequenceClassification(config)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("bits", [8, 5])
def test_trained_on_grids_and_saved_as_integers(tmp_path: Path, bits: int) -> None:
    model, data = _model(), _data(32)
    args = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=16,
        max_steps=2,
        learning_rate=1e-3,
        save_strategy="no",
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
    )
    trainer = Trainer(
        model,
        args,
        train_dataset=data,
        data_collator=_collate,
        fallback="error",
        cache_dir="off",
        quantize={"bits": bits, "exclude": ["classifier"]},
    )
    scales = {n: p.detach().clone() for n, p in model.named_parameters() if n.endswith("_log_scale")}
    assert len(scales) == 2 * sum(isinstance(m, GridLinear) for m in model.modules()) == 14
    trainer.train()
    assert trainer.bridge.counts["torch"] == 0
    still = [n for n, p in model.named_parameters() if n in scales and torch.equal(p, scales[n])]
    assert not still, "every scale is learned"
    path = trainer.save_onnx(tmp_path / "q.onnx")
    operators = [n.op_type for n in Model.load(path).graph]
    assert operators.count("MatMulIntegerToFloat") == 7
    assert "Round" not in operators
    batch = _collate(data)
    labels = batch.pop("labels")
    model.eval()
    with trainer.bridge.detached(), torch.no_grad():
        expected = model(**batch).logits.numpy()
    found = runtime.run(runtime.session(path), {k: v.numpy() for k, v in batch.items()})["logits"]
    # A value on the edge between two integers may fall to either side.
    np.testing.assert_allclose(found, expected, atol=2e-2 if bits == 8 else 1e-1)
    assert (found.argmax(-1) == expected.argmax(-1)).mean() >= 0.95
    assert len(labels) == len(found)


def test_gradients_of_scales_are_those_of_learned_steps() -> None:
    """Against the formula of learned step sizes: (round(v) - v) inside the grid, its ends outside."""
    torch.manual_seed(1)
    layer = torch.nn.Sequential(torch.nn.Linear(6, 3))
    x = torch.randn(40, 6)
    make_aware(layer, [{"input": x}])
    grid = layer[0]
    assert isinstance(grid, GridLinear)
    with torch.no_grad():
        grid.input_log_scale.sub_(0.7)  # so that some inputs are clipped
    x.requires_grad_(True)
    layer(x).sum().backward()
    scale = grid.input_log_scale.detach().exp()
    v = x.detach() / scale
    whole = torch.round(v)
    step = torch.where(whole < -128, -128.0, torch.where(whole > 127, 127.0, whole - v))
    steps = grid.weight_log_scale.exp()
    weight = torch.clamp(torch.round(grid.weight / steps), -128, 127) * steps
    expected = (step @ weight.detach().T).sum() * scale
    torch.testing.assert_close(grid.input_log_scale.grad, expected, rtol=1e-3, atol=1e-3)


def test_what_cannot_be_put_on_grids() -> None:
    with pytest.raises(FuselineError, match="bits are 2 to 8, not 16"):
        make_aware(_model(), [], bits=16)
    with pytest.raises(FuselineError, match="no linear layer"):
        make_aware(torch.nn.Tanh(), [{}])
