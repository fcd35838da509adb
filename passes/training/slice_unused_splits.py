"""The pass `slice-unused-splits`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["SliceUnusedSplits"]


class SliceUnusedSplits(LocalRewrite):
    """Split with an output that nothing uses → one Slice per used output

    The gradient of such a Split has the wrong shape.
    """

    name = "slice-unused-splits"
    operators = ("Split",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        if all(v.uses() for v in node.outputs):
            return False
        return _sizes(model, node) is not None or "the sizes of its parts are not known"

    def build(self, op: Builder, node: ir.Node) -> Sequence[ir.Value | None]:
        sizes = _sizes(op.model, node)
        assert sizes is not None
        axis = np.array([attribute(node, "axis", 0)])
        made: list[ir.Value | None] = []
        start = 0
        for output, size in zip(node.outputs, sizes, strict=True):
            used = output.uses() or output.is_graph_output()
            bounds = (np.array([start]), np.array([start + size]))
            made.append(op.Slice(node.inputs[0], *bounds, axis) if used else None)
            start += size
        return made


def _sizes(model: Model, node: ir.Node) -> list[int] | None:
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        split = constant(model, node.inputs[1])
        return [int(s) for s in split] if split is not None else None
    x, count = node.inputs[0], len(node.outputs)
    length = x.shape[attribute(node, "axis", 0)] if x is not None and x.shape is not None else None
    if not isinstance(length, int):
        return None
    part = -(-length // count)
    return [min(part, length - i * part) for i in range(count)]
