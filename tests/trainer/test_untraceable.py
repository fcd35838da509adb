"""A model that torch.export cannot trace: the Trainer falls back with the exporter's own message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trainer_harness import arguments, rows, train
from transformers import BertForSequenceClassification

from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer


class MoodyForSequenceClassification(BertForSequenceClassification):
    """Its forward looks at the content of its input, which no graph can follow."""

    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> Any:
        if attention_mask.sum() < 3:
            attention_mask = None
        return super().forward(input_ids, attention_mask=attention_mask, labels=labels)


def test_the_warning_says_what_and_where(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = MoodyForSequenceClassification(zoo.config("bert")).train()
    with caplog.at_level("WARNING"):
        settings = arguments(folder, max_steps=2)
        record = train(Trainer, model, settings, rows(model, 8), fallback="torch", cache_dir="off")
    assert len(record.losses) == 2
    (warning,) = [r.getMessage() for r in caplog.records if "cannot run on ONNX Runtime" in r.getMessage()]
    assert "branches on the content of a tensor at " in warning
    assert "test_untraceable.py:" in warning
