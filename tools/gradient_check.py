"""Are the gradients of a training export torch's? Runs a training pipeline and compares every parameter."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from fuseline import kernels
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters.mode import without_dropout
from fuseline.exporters.plan import Plan
from fuseline.exporters.verify import CheckReport, check_gradients

__all__ = ["differentiated", "gradient_report", "gradient_report_of"]


def differentiated(model: Model, pipeline: str | None = None) -> Model:
    """The model with its gradients, by a ready pipeline: `training`, if its operators are there."""
    ready = "training" if kernels.available() else "training-stock"
    return Pipeline.resolve(pipeline or ready).run(model).model


def gradient_report(model: Model, plan: Plan, *, pipeline: str | None = None) -> CheckReport:
    """Differentiate and compare on every shape that the plan checks, dropout passing through."""
    return gradient_report_of(differentiated(without_dropout(model), pipeline), plan)


def gradient_report_of(model: Model, plan: Plan) -> CheckReport:
    """Compare the gradients of a differentiated model."""
    step = TrainingStep(model, threads=1)

    def run(feeds: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        step.run(feeds, seed=0)
        return step.gradients

    return check_gradients(plan, run)
