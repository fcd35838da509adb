"""Dropout inside fused operators: a ratio, the step's seed, and a stream of its own for every node."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context
from fuseline.engine.training.dropout import next_stream, seed_input

__all__ = ["dropout_inputs"]


def dropout_inputs(
    op: Builder, context: Context, ratio: ir.Value | None, training: ir.Value | None
) -> tuple[ir.Value, ir.Value, int]:
    """Ratio, seed and stream of a fused operator that takes over a Dropout (or none: ratio is None)."""
    rate = 0.0
    if ratio is not None and (training is None or context.scalar(training)):
        rate = context.scalar(ratio) or 0.0
    if rate == 0.0:
        return op.constant(np.zeros(1, np.float32), "ratio"), op.constant(np.zeros(1, np.int64), "seed"), 0
    constant = op.constant(np.array([rate], np.float32), "ratio")
    return constant, seed_input(context.model), next_stream(context.model)
