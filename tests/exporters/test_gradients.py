"""Training exports through the training pipeline: torch's gradients, and dropout that is dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fuseline.engine.model import Model
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.exporters.planning import make_plan
from fuseline.exporters.sources import resolve
from fuseline.tools.gradient_check import differentiated, gradient_report


def test_gradients_of_bert_equal_torch(bert: tuple[Any, Model]) -> None:
    module, model = bert
    report = gradient_report(model, make_plan(resolve(module), train=True))
    assert report.ok
    assert len(report.checks) == 3
