"""Dropout inside fused operators: a ratio, the step's seed, and a stream of its own for every node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context
from fuseline.engine.training.forward import SEED

__all__ = ["dropout_inputs"]


def dropout_inputs(op: Builder, context: Context, ratio: Any, training: Any) -> tuple[Any, Any, int]:
    """Ratio, seed and stream of a fused operator that takes over a Dropout (or none: ratio is None)."""
    rate = 0.0
    if ratio is not None and (training is None or context.scalar(training)):
        rate = context.scalar(ratio) or 0.0
    if rate == 0.0:
        return op.constant(np.zeros(1, np.float32), "ratio"), op.constant(np.zeros(1, np.int64), "seed"), 0
    seed = _seed(context)
    # Nodes that share a stream would drop the same elements.
    taken = [n.attributes["stream"].as_int() for n, _ in seed.uses() if "stream" in n.attributes]
    return op.constant(np.array([rate], np.float32), "ratio"), seed, max(taken, default=0) + 1


def _seed(context: Context) -> ir.Value:
    graph = context.model.graph
    for value in graph.inputs:
        if value.name == SEED:
            return value
    made = ir.Value(name=SEED, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([1]))
    graph.inputs.append(made)
    return made
