"""The pass `flatten-linear`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_standard, rank_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["FlattenLinear"]


class FlattenLinear(Pass):
    """MatMul(x, Wᵀ)+bias → Gemm of x with its leading axes as one, the bias in its epilogue

    All three products of a linear layer's gradient are then plain matrix products without a Transpose.
    """

    name = "flatten-linear"
    phase = "pre-gradient"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in list(model.graph):
            if node.op_type != "MatMul" or not is_standard(node):
                continue
            reason = _obstacle(node)
            if reason is not None:
                rewriter.reject(node, reason)
            elif rewriter.permit(node, self.summary()):
                _exchange(model, rewriter, node)
        return rewriter.changes


def _obstacle(node: ir.Node) -> str | None:
    x, weight = node.inputs
    assert x is not None
    assert weight is not None
    rank = rank_of(x)
    if rank_of(weight) != 2 or rank is None or rank < 2:
        return "it is not a product with one matrix"
    if x.dtype != ir.DataType.FLOAT:
        return f"its type is {x.dtype}, not float32"
    if not isinstance(_columns(weight), int) or not isinstance(_rows(weight), int):
        return "the size of the matrix is not known"
    return None


def _rows(weight: ir.Value) -> object:
    return weight.shape[0] if weight.shape is not None else None


def _columns(weight: ir.Value) -> object:
    return weight.shape[1] if weight.shape is not None else None


def _transposed(weight: ir.Value) -> ir.Value | None:
    """What the weight is the transpose of, if it is one."""
    producer = weight.producer()
    if (
        producer is None
        or producer.op_type != "Transpose"
        or list(attribute(producer, "perm", [1, 0])) != [1, 0]
    ):
        return None
    return producer.inputs[0]


def _bias(node: ir.Node) -> tuple[ir.Node, ir.Value] | None:
    """The Add behind the product and its other operand, if that is a bias."""
    uses = node.outputs[0].uses()
    if len(uses) != 1 or node.outputs[0].is_graph_output():
        return None
    add, index = next(iter(uses))
    if add.op_type != "Add" or not is_standard(add):
        return None
    bias = add.inputs[1 - index]
    assert node.inputs[1] is not None
    if bias is None or rank_of(bias) != 1 or bias.shape is None:
        return None
    return (add, bias) if bias.shape[0] == _columns(node.inputs[1]) else None


def _exchange(model: Model, rewriter: Rewriter, node: ir.Node) -> None:
    x, weight = node.inputs
    assert x is not None
    assert weight is not None
    added = _bias(node)
    last = node if added is None else added[0]
    op = rewriter.builder(last)
    rows, columns = _rows(weight), _columns(weight)
    source = _transposed(weight)
    flat = x if rank_of(x) == 2 else op.Reshape(x, np.array([-1, rows]))
    operands = [flat, weight if source is None else source]
    product = op.Gemm(*operands, *([] if added is None else [added[1]]), transB=int(source is not None))
    result = product if rank_of(x) == 2 else op.Reshape(product, _shape(op, x, columns))
    old = [node] if added is None else [node, added[0]]
    rewriter.replace(old, op.nodes, [(last.outputs[0], result)])
    producer = weight.producer()
    if producer is not None:
        rewriter.remove(producer)


def _shape(op: Builder, x: ir.Value, columns: object) -> ir.Value:
    """The shape of x with another last axis; at most one axis that is not known needs no computing."""
    assert x.shape is not None
    leading = list(x.shape)[:-1]
    if sum(not isinstance(d, int) for d in leading) <= 1:
        return op.constant([d if isinstance(d, int) else -1 for d in leading] + [int(str(columns))])
    return op.Concat(op.Shape(x, start=0, end=-1), np.array([columns]), axis=0)
