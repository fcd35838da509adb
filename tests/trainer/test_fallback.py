"""What cannot be compiled trains in torch, after one warning that names all that stands in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from trainer_harness import arguments, assert_same, both, make, rows

from fuseline.engine.errors import FuselineError
from fuseline.tools.campaigns import zoo


class TwistedForSequenceClassification(transformers.BertForSequenceClassification):
    """A classifier with two operators on the way to its loss that have no gradient."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Any:
        pooled = self.bert(input_ids, attention_mask, token_type_ids).pooler_output
        product = (1 + pooled[:, :3]).prod(-1, keepdim=True)
        logits = self.classifier(torch.fmod(pooled, 0.7)) * product
        loss = torch.nn.functional.cross_entropy(logits, labels)
        return transformers.modeling_outputs.SequenceClassifierOutput(loss=loss, logits=logits)


def test_every_blocking_node_is_named_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = TwistedForSequenceClassification(zoo.config("bert"))
    ours = {"fallback": "torch", "cache_dir": "off"}
    with caplog.at_level("WARNING"):
        stock, mine = both(model, arguments(folder, max_steps=4), rows(model, 12), ours=ours)
    assert_same(stock, mine, relative=0, absolute=0)
    (warning,) = [m for m in caplog.messages if "cannot run on ONNX Runtime" in m]
    assert "TwistedForSequenceClassification trains in torch" in warning
    assert "2 nodes stand between parameters and the loss without a gradient" in warning
    for op_type, line in (("ReduceProd", "prod(-1"), ("Mod", "fmod")):
        (named,) = [text for text in warning.splitlines() if text.strip().startswith(f"{op_type} ")]
        assert f"{Path(__file__).name}" in named, f"where is {line}?"
    assert dict(mine.trainer.bridge.counts) == {"torch": 4}


def test_error_refuses(folder: Path) -> None:
    model = TwistedForSequenceClassification(zoo.config("bert"))
    trainer = make(model, arguments(folder), train_dataset=rows(model, 8), cache_dir="off")
    with pytest.raises(FuselineError, match="2 nodes stand between"):
        trainer.train()


def test_what_cannot_be_exported_falls_back(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise FuselineError("layer.0 cannot be exported")

    monkeypatch.setattr("fuseline.tools.trainer.compiler.export", refuse)
    model = zoo.build("bert")
    ours = {"fallback": "torch", "cache_dir": "off"}
    with caplog.at_level("WARNING"):
        stock, mine = both(model, arguments(folder, max_steps=4), rows(model, 12), ours=ours)
    assert_same(stock, mine, relative=0, absolute=0)
    (warning,) = [m for m in caplog.messages if "cannot run on ONNX Runtime" in m]
    assert "layer.0 cannot be exported" in warning
    assert mine.trainer.bridge.blocked is not None


def test_whole_step_falls_back_too(folder: Path) -> None:
    model = TwistedForSequenceClassification(zoo.config("bert"))
    ours = {"fallback": "torch", "cache_dir": "off", "whole_step": True}
    stock, mine = both(model, arguments(folder, max_steps=4), rows(model, 12), ours=ours)
    assert_same(stock, mine, relative=1e-6, absolute=1e-6)
    assert dict(mine.trainer.bridge.counts) == {"torch": 4}


def test_unknown_fallback_is_refused(folder: Path) -> None:
    with pytest.raises(FuselineError, match="fallback is 'torch' or 'error', not 'cuda'"):
        make(zoo.build("bert"), arguments(folder), fallback="cuda")
