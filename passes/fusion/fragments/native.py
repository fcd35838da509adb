"""Nodes of the native operators, typed after their records."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from fuseline.engine.patterns import Builder
from fuseline.engine.shapes.dims import dims_of
from fuseline.kernels import OPERATORS

__all__ = ["native", "nothing"]

_TYPES = {
    "float": ir.DataType.FLOAT,
    "double": ir.DataType.DOUBLE,
    "int64": ir.DataType.INT64,
    "bool": ir.DataType.BOOL,
}


def native(op: Builder, name: str, *inputs: Any, **attributes: Any) -> Any:
    """The first output of a native operator; the others carry what its backward needs."""
    record = OPERATORS[name]
    count = len(record.outputs)
    made = op.node(name, *inputs, **attributes, _domain="fuseline", _outputs=count)
    outputs = made if count > 1 else (made,)
    known = {port.name: dims_of(value) for port, value in zip(record.inputs, inputs, strict=True)}
    shapes = record.output_shapes({k: v for k, v in known.items() if v is not None})
    for port, value in zip(record.outputs, outputs, strict=True):
        value.type = ir.TensorType(_TYPES[port.type])
        shape = shapes[port.name]
        value.shape = None if shape is None else ir.Shape(shape)
    return outputs[0]


def nothing(op: Builder) -> ir.Value:
    """A tensor without elements: an absent mask, bias or residual (native operators leave no input out)."""
    return op.constant(np.zeros(0, np.float32), "none")
