"""Training exports through the training pipeline: torch's gradients, and dropout that is dropout."""

from __future__ import annotations

from typing import Any

import pytest

from fuseline.engine.model import Model
from fuseline.exporters.planning import make_plan
from fuseline.exporters.sources import resolve
from fuseline.tools.gradient_check import gradient_report


@pytest.mark.native
def test_gradients_of_bert_equal_torch(bert: tuple[Any, Model]) -> None:
    module, model = bert
    report = gradient_report(model, make_plan(resolve(module), train=True))
    assert report.ok
    assert len(report.checks) == 3
