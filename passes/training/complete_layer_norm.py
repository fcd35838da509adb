"""The pass `complete-layer-norm`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["CompleteLayerNorm"]


class CompleteLayerNorm(LocalRewrite):
    """LayerNormalization(x, scale) → LayerNormalization(x, scale, bias) and its statistics

    Its gradient reads the mean and the deviation, and always makes a gradient for the bias.
    """

    name = "complete-layer-norm"
    operators = ("LayerNormalization",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        if len(node.outputs) == 3 and all(v.name for v in node.outputs) and _has_bias(node):
            return False
        scale = node.inputs[1]
        if not _has_bias(node) and (scale is None or scale.shape is None or not scale.shape.is_static()):
            return "the size of the missing bias is not known"
        return True

    def build(self, op: Builder, node: ir.Node) -> Sequence[ir.Value]:
        x, scale = node.inputs[0], node.inputs[1]
        assert x is not None
        assert scale is not None
        bias: ir.Value | np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None
        bias = node.inputs[2] if _has_bias(node) else np.zeros(scale.shape.numpy(), np.float32)  # type: ignore[union-attr]
        return op.copy(node, [x, scale, bias], outputs=3)


def _has_bias(node: ir.Node) -> bool:
    return len(node.inputs) > 2 and node.inputs[2] is not None


def _attributes(node: ir.Node) -> dict[str, Any]:
    return {name: a.value for name, a in node.attributes.items()}
