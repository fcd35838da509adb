"""The pass `native-weight-gradient`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.analysis import Positions
from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_standard
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["NativeWeightGradient"]


class NativeWeightGradient(Pass):
    """Gemm(dyᵀ, x), ReduceSum(dy) → fuseline.FusedWeightGrad: gradients of weight and bias in one operator

    Of the three products of a linear layer this is the one that ONNX Runtime is slow at.
    """

    name = "native-weight-gradient"
    phase = "post-gradient"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        position = rewriter.analysis(Positions)
        for node in list(model.graph):
            if node.op_type != "Gemm" or not is_standard(node) or not _is_weight_gradient(node):
                continue
            if rewriter.permit(node, self.summary()):
                _exchange(model, rewriter, node, position)
        return rewriter.changes


def _is_weight_gradient(node: ir.Node) -> bool:
    plain = attribute(node, "alpha", 1.0) == 1.0 and not attribute(node, "transB", 0)
    no_addend = len(node.inputs) < 3 or node.inputs[2] is None
    return plain and no_addend and bool(attribute(node, "transA", 0))


def _exchange(model: Model, rewriter: Rewriter, node: ir.Node, position: dict[ir.Node, int]) -> None:
    dy, x = node.inputs
    assert dy is not None
    sums = _column_sums(model, dy)
    op = rewriter.builder(node)
    outputs = op.FusedWeightGrad(dy, x, _outputs=2, _domain="fuseline")
    # It stands where the first of them stood, so that all their readers come after it.
    first = min([node, *sums], key=position.__getitem__)
    rewriter.insert(first, op.nodes, replaces=[node, *sums])
    rewriter.redirect(node.outputs[0], outputs[0])
    for total in sums:
        rewriter.redirect(total.outputs[0], outputs[1])
    rewriter.remove(node, *sums)


def _column_sums(model: Model, dy: ir.Value) -> list[ir.Node]:
    """Nodes that sum dy's columns: one of them becomes the operator's second output."""
    found: list[ir.Node] = []
    for user, index in dy.uses():
        if user.op_type != "ReduceSum" or index != 0 or attribute(user, "keepdims", 1):
            continue
        axes = constant(model, user.inputs[1]) if len(user.inputs) > 1 else None
        if axes is not None and axes.tolist() == [0] and not found:
            found.append(user)
    return found
