"""The pass `widen-matmul`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["WidenMatmul"]


class WidenMatmul(LocalRewrite):
    """MatMul with a vector → MatMul of matrices, the extra axis taken away again"""

    name = "widen-matmul"
    operators = ("MatMul",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        return 1 in (rank_of(node.inputs[0]), rank_of(node.inputs[1]))

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        a, b = node.inputs
        left, right = rank_of(a) == 1, rank_of(b) == 1
        product = op.MatMul(
            op.Unsqueeze(a, np.array([0])) if left else a,
            op.Unsqueeze(b, np.array([1])) if right else b,
        )
        if right:
            product = op.Squeeze(product, np.array([-1]))
        return op.Squeeze(product, np.array([-1 if right else -2])) if left else product
