"""The pass `resolve-split-sequence`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import constant, scalar
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_standard
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["ResolveSplitSequence"]


class ResolveSplitSequence(Pass):
    """SequenceAt(SplitToSequence(x), i) → output i of Split(x)

    A gradient cannot pass through a sequence, so that what lies before it would not be trained.
    """

    name = "resolve-split-sequence"
    phase = "pre-gradient"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in list(model.nodes()):
            if node.op_type != "SplitToSequence" or not is_standard(node):
                continue
            readers = [user for user, _ in node.outputs[0].uses()]
            reason = _obstacle(model, node, readers)
            if reason is not None:
                rewriter.reject(node, reason)
            elif rewriter.permit(node, "SplitToSequence → Split"):
                _exchange(model, rewriter, node, readers)
        return rewriter.changes


def _obstacle(model: Model, node: ir.Node, readers: list[ir.Node]) -> str | None:
    if node.outputs[0].is_graph_output():
        return "the sequence is an output of the graph"
    if not attribute(node, "keepdims", 1) and len(node.inputs) < 2:
        return "it splits into slices without the axis"
    sizes = _sizes(model, node)
    if sizes is None:
        return "the sizes of the parts are not known"
    for reader in readers:
        if reader.op_type != "SequenceAt" or reader.graph is not node.graph:
            return f"the sequence is read by {reader.op_type} {reader.name!r}"
        if scalar(model, reader.inputs[1]) is None:
            return f"{reader.name!r} takes a part by a position that is not constant"
    return None


def _sizes(model: Model, node: ir.Node) -> list[int] | None:
    x = node.inputs[0]
    assert x is not None
    axis = attribute(node, "axis", 0)
    length = x.shape[axis] if x.shape is not None else None
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return [1] * length if isinstance(length, int) else None
    split = constant(model, node.inputs[1])
    if split is None:
        return None
    if split.ndim == 1:
        return [int(s) for s in split]
    if not isinstance(length, int):
        return None
    part = int(split)
    return [min(part, length - start) for start in range(0, length, part)]


def _exchange(model: Model, rewriter: Rewriter, node: ir.Node, readers: list[ir.Node]) -> None:
    sizes = _sizes(model, node)
    assert sizes is not None
    axis = attribute(node, "axis", 0)
    x = node.inputs[0]
    assert x is not None
    with rewriter.building(node) as op:
        parts = op.Split(x, np.array(sizes, np.int64), _outputs=len(sizes), axis=axis)
        rewriter.insert(node, op.nodes, replaces=[node, *readers])
        for reader in readers:
            position = scalar(model, reader.inputs[1])
            assert position is not None
            rewriter.redirect(reader.outputs[0], parts[int(position)])
        rewriter.remove(*readers, node)
