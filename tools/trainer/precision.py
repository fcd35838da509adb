"""Where a training pipeline lowers its precision: right before the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fuseline import kernels
from fuseline.engine.pipeline import Pipeline, Repeat, Stage
from fuseline.engine.properties import Property
from fuseline.passes.training.mixed_precision import MixedPrecision
from fuseline.passes.training.native_linear_bf16 import NativeLinearBf16

__all__ = ["Precision", "before_gradient", "in_precision"]

Precision = Literal["fp32", "bf16", "fp16"]

#: Passes that choose a precision themselves.
_LOWERING = (MixedPrecision.name, NativeLinearBf16.name)


def in_precision(pipeline: Pipeline, precision: Precision) -> Pipeline:
    """The pipeline with the pass that lowers the precision right before the gradient, unless it has one.

    bf16 needs a processor that multiplies in it; without, everything stays in fp32.
    """
    if precision == "fp32" or any(p.name in _LOWERING for p in pipeline.passes()):
        return pipeline
    if precision == "fp16":
        return Pipeline(_insert_before_gradient(pipeline.stages, MixedPrecision(to="fp16")))
    if not kernels.multiplies_bf16():
        return pipeline
    return Pipeline(_insert_before_gradient(pipeline.stages, NativeLinearBf16()))


def before_gradient(pipeline: Pipeline) -> Pipeline:
    """What of it comes before the gradient."""
    # What only gradients need to know would only cost time.
    stages = pipeline.stages[: _gradient(pipeline.stages)]
    return Pipeline(tuple(s for s in stages if str(s) != "check-trainable"))


def _insert_before_gradient(stages: Sequence[Stage], added: Stage) -> tuple[Stage, ...]:
    index = _gradient(stages)
    return (*stages[:index], added, *stages[index:])


def _gradient(stages: Sequence[Stage]) -> int:
    return next((i for i, s in enumerate(stages) if _differentiates(s)), len(stages))


def _differentiates(stage: Stage) -> bool:
    if isinstance(stage, Repeat):
        return any(_differentiates(s) for s in stage.stages)
    return Property.DIFFERENTIATED in stage.ensures
