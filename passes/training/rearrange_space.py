"""The pass `rearrange-space`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.nodes import attribute
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["RearrangeSpace"]


class RearrangeSpace(LocalRewrite):
    """DepthToSpace, SpaceToDepth → Reshape, Transpose, Reshape"""

    name = "rearrange-space"
    operators = ("DepthToSpace", "SpaceToDepth")

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x, block = node.inputs[0], int(attribute(node, "blocksize", 1))
        batch, channels, height, width = (_axis(op, x, i) for i in range(4))
        b = op.constant(np.array([block]))
        if node.op_type == "SpaceToDepth":
            rows, columns = op.Div(height, b), op.Div(width, b)
            split = [batch, channels, rows, b, columns, b]
            joined = [batch, op.Mul(channels, np.array([block * block])), rows, columns]
            return _rearranged(op, x, split, [0, 3, 5, 1, 2, 4], joined)
        depth = op.Div(channels, np.array([block * block]))
        joined = [batch, depth, op.Mul(height, b), op.Mul(width, b)]
        if attribute(node, "mode", "DCR") == "CRD":
            return _rearranged(op, x, [batch, depth, b, b, height, width], [0, 1, 4, 2, 5, 3], joined)
        return _rearranged(op, x, [batch, b, b, depth, height, width], [0, 3, 4, 1, 5, 2], joined)


def _axis(op: Builder, x: ir.Value | None, index: int) -> ir.Value:
    return op.Shape(x, start=index, end=index + 1)


def _rearranged(
    op: Builder, x: ir.Value | None, split: list[ir.Value], perm: list[int], joined: list[ir.Value]
) -> ir.Value:
    parts = op.Reshape(x, op.Concat(*split, axis=0))
    return op.Reshape(op.Transpose(parts, perm=perm), op.Concat(*joined, axis=0))
