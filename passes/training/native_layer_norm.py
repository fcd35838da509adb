"""The pass `native-layer-norm`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite
from fuseline.passes.training.native import EMPTY

__all__ = ["NativeLayerNorm"]


class NativeLayerNorm(LocalRewrite):
    """LayerNormalization over the last axis → fuseline.FusedLayerNorm, whose gradient is ours too"""

    name = "native-layer-norm"
    operators = ("LayerNormalization",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        x = node.inputs[0]
        assert x is not None
        axis, rank = attribute(node, "axis", -1), rank_of(x)
        if axis != -1 and (rank is None or axis != rank - 1):
            return f"it normalises from axis {axis} on, not over the last axis alone"
        if x.dtype != ir.DataType.FLOAT:
            return f"its type is {x.dtype}, not float32"
        if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
            return "its statistics are used elsewhere"
        return True

    def build(self, op: Builder, node: ir.Node) -> Sequence[ir.Value | None]:
        x, scale, *rest = node.inputs
        bias = rest[0] if rest and rest[0] is not None else EMPTY
        epsilon = float(attribute(node, "epsilon", 1e-5))
        y, *_ = op.FusedLayerNorm(x, scale, bias, _outputs=3, _domain="fuseline", epsilon=epsilon)
        return [y]
