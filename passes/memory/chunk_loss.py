"""The pass `chunk-loss`."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.analysis import Positions, ancestors
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_op, rank_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.pruning import leave_out_unread
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.training.native import EMPTY

__all__ = ["ChunkLoss"]


class ChunkLoss(Pass):
    """Gemm, FusedCrossEntropy and their gradients → fuseline.FusedLinearCrossEntropy, by chunks of tokens

    The scores of a vocabulary, often the largest tensor of a step, are never there as a whole, nor are their
    gradients. It multiplies no more than before: what the loss is multiplied by is known before the loss is.
    Scores that the graph returns stay, and are computed for whoever asks for them alone.
    """

    name = "chunk-loss"
    phase = "post-gradient"
    requires = (Property.DIFFERENTIATED,)
    forbids = (Property.ORDERED,)
    minimum_classes: int = 2048
    """Fewer make scores too small to be worth it."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for loss in [n for n in model.graph if n.op_type == "FusedCrossEntropy" and n.domain == "fuseline"]:
            found = _head(loss, self.minimum_classes)
            moved = _hoisted(loss, found, rewriter.analysis(Positions)) if isinstance(found, _Head) else found
            if isinstance(found, str) or isinstance(moved, str):
                rewriter.reject(loss, str(moved))
            elif rewriter.permit(loss, self.summary()):
                _exchange(model, rewriter, loss, found, moved)
        return rewriter.changes


@dataclass(frozen=True)
class _Head:
    """A linear layer in front of a loss, and the nodes of the gradients of both."""

    linear: ir.Node
    gradient: ir.Node
    to_rows: list[ir.Node]
    to_weight: list[ir.Node]


def _head(loss: ir.Node, minimum: int) -> _Head | str:
    scores = loss.inputs[0]
    assert scores is not None
    linear = scores.producer()
    if linear is None or not is_op(linear, "Gemm"):
        return "its scores are not the result of a product with a matrix"
    reason = _obstacle_in(linear, minimum)
    if reason is not None:
        return reason
    gradients = {use.node for value in loss.outputs[1:] for use in value.uses()}
    gradient = next(iter(gradients), None)
    if gradient is None or len(gradients) > 1 or gradient.op_type != "FusedCrossEntropyGrad":
        return "it has no gradient of its own"
    if any(use.node not in (loss, gradient) for use in scores.uses()):
        return "its scores are read elsewhere"
    if gradient.inputs[1] is not scores or gradient.outputs[0].is_graph_output():
        return "the gradient of its scores is used elsewhere"
    return _readers(linear, gradient)


def _obstacle_in(linear: ir.Node, minimum: int) -> str | None:
    _, weight, *bias = linear.inputs
    plain = attribute(linear, "alpha", 1.0) == 1.0 and not attribute(linear, "transA", 0)
    if not plain or (bias and bias[0] is not None and attribute(linear, "beta", 1.0) != 1.0):
        return "the product in front of it is scaled or reads its rows as columns"
    if not attribute(linear, "transB", 0):
        return "the classes are not the rows of its matrix"
    if any(v is not None and v.dtype != ir.DataType.FLOAT for v in linear.inputs):
        return "the product in front of it is not in float32"
    dims = dims_of(weight)
    if dims is None or not isinstance(dims[0], int) or dims[0] < minimum:
        return f"it has {dims[0] if dims else 'an unknown number of'} classes, fewer than {minimum}"
    if bias and bias[0] is not None and (rank_of(bias[0]) != 1 or dims_of(bias[0]) != (dims[0],)):
        return "the bias in front of it is not one number a class"
    return None


def _readers(linear: ir.Node, gradient: ir.Node) -> _Head | str:
    """Who reads the gradient of the scores: the gradients of the layer, and nobody else."""
    head = _Head(linear, gradient, [], [])
    x, weight = linear.inputs[0], linear.inputs[1]
    slopes = gradient.outputs[0]
    biased = len(linear.inputs) > 2 and linear.inputs[2] is not None
    for use in slopes.uses():
        node = use.node
        if is_op(node, "Gemm") and use.idx == 0 and node.inputs[1] is weight and _is_plain(node):
            head.to_rows.append(node)
        elif node.op_type == "FusedWeightGrad" and use.idx == 0 and node.inputs[1] is x:
            head.to_weight.append(node)
            if not biased and len(node.outputs) > 1 and node.outputs[1].uses():
                return f"{node.name} sums the gradient of its scores, which have no bias"
        else:
            return f"{node.name or node.op_type} reads the gradient of its scores"
    return head


def _is_plain(node: ir.Node) -> bool:
    added = len(node.inputs) > 2 and node.inputs[2] is not None
    turned = attribute(node, "transA", 0) or attribute(node, "transB", 0)
    return not added and not turned and attribute(node, "alpha", 1.0) == 1.0


def _hoisted(loss: ir.Node, head: _Head, position: dict[ir.Node, int]) -> list[ir.Node] | str:
    """The nodes behind the loss that make what its gradient is multiplied by; they must not need the loss."""
    factor = head.gradient.inputs[0]
    assert factor is not None
    needed = ancestors([factor])
    if any(value in needed for value in loss.outputs):
        return "what its gradient is multiplied by is made from the loss"
    makers = {p for v in needed if (p := v.producer()) is not None and p in position}
    return sorted((n for n in makers if position[n] > position[loss]), key=position.__getitem__)


def _exchange(model: Model, rewriter: Rewriter, loss: ir.Node, head: _Head, moved: list[ir.Node]) -> None:
    order = [n for n in model.graph if n not in set(moved)]
    if moved:
        place = order.index(loss)
        rewriter.reorder(model.graph, [*order[:place], *moved, *order[place:]])
    op = rewriter.builder(loss)
    x, weight, *bias = head.linear.inputs
    options = {name: a.value for name, a in loss.attributes.items()}
    made = op.FusedLinearCrossEntropy(
        head.gradient.inputs[0],
        x,
        weight,
        bias[0] if bias and bias[0] is not None else EMPTY,
        loss.inputs[1],
        _outputs=4,
        _domain="fuseline",
        **options,
    )
    replaced = [head.linear, loss, head.gradient, *head.to_rows, *head.to_weight]
    rewriter.insert(loss, op.nodes, replaces=replaced)
    for node in head.to_rows:
        rewriter.redirect(node.outputs[0], made[0])
    for node in head.to_weight:
        for old, new in zip(node.outputs, made[1:3], strict=False):
            rewriter.redirect(old, new)
    rewriter.redirect(loss.outputs[0], made[3])
    rewriter.remove(*reversed(replaced))
    leave_out_unread(made)
