"""Gradients for verification: built where the graph has none, read where it has, under original names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline, ready_pipelines
from fuseline.engine.properties import Property
from fuseline.engine.training.gradients import build_gradients, gradient_name

__all__ = ["gradient_names", "original_gradients", "with_gradients"]

Array = npt.NDArray[Any]

_MENDING = "prepare-for-gradient"


def gradient_names(model: Model) -> set[str]:
    """The names under which gradients of trainable values are outputs."""
    return {gradient_name(v) for v in model.parameters.trainable_values()}


def with_gradients(model: Model) -> Model:
    """The model with an output `<value>_grad` per trainable value; raises PassError if that cannot be."""
    if not model.has(Property.DIFFERENTIATED):
        return _differentiate(model)
    wanted = gradient_names(model) - {v.name for v in model.graph.outputs}
    if not wanted:
        return model
    # An optimizer in the graph consumes the gradients; they are still there, only no longer outputs.
    copy = model.clone()
    for node in copy.graph:
        copy.graph.outputs.extend(v for v in node.outputs if v.name in wanted)
    return copy


def _differentiate(model: Model) -> Model:
    """Gradients of the graph after mending it, on a copy, for ONNX Runtime's gradient builder.

    The builder refuses some nodes and silently gets others wrong (grouped one-dimensional convolutions,
    broadcasting Where, …), so that unmended gradients are no reference even where they can be built.
    """
    if _MENDING not in ready_pipelines():
        return build_gradients(model)
    return build_gradients(Pipeline.resolve(_MENDING).run(model).model)


def original_gradients(outputs: Mapping[str, Array], model: Model) -> dict[str, Array]:
    """Gradients by original parameter name and in its shape, whatever passes did to the weight."""
    values = {
        v: outputs[gradient_name(v)]
        for v in model.parameters.trainable_values()
        if gradient_name(v) in outputs
    }
    return {n: g for n, g in model.parameters.from_graph(values).items() if model.parameters[n].trainable}
