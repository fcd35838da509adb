"""The pass `separate-scatter`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["SeparateScatter"]


class SeparateScatter(LocalRewrite):
    """Scatter(data, i, updates) that adds → data + Scatter(zeros, i, updates)

    The gradient of an adding ScatterND or ScatterElements is zero at the indices, where data still counts.
    """

    name = "separate-scatter"
    operators = ("ScatterND", "ScatterElements")

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        data = node.inputs[0]
        producer = data.producer() if data is not None else None
        if attribute(node, "reduction", "none") != "add":
            return False
        return producer is None or producer.op_type not in ("ConstantOfShape", "Constant")

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        data, *rest = node.inputs
        assert data is not None
        dtype = (data.dtype or ir.DataType.FLOAT).numpy()
        zeros = op.ConstantOfShape(op.Shape(data), value=ir.tensor(np.zeros(1, dtype)))
        return op.Add(data, op.copy(node, [zeros, *rest])[0])
