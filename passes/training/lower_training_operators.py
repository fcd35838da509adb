"""The pass `lower-training-operators`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_op, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite
from fuseline.engine.shapes.dims import dims_of

__all__ = ["LowerTrainingOperators"]

Made = ir.Value | Sequence[ir.Value | None]


class LowerTrainingOperators(LocalRewrite):
    """com.microsoft.TanhGrad, ReluGrad, GatherGrad, SliceGrad, … → operators that stock ONNX Runtime has

    The finished training graph then runs on any current onnxruntime; the training build is needed only to
    make it. Sums by index use the native embedding gradient, which is also faster.
    """

    name = "lower-training-operators"
    phase = "post-gradient"
    operators = (
        "com.microsoft::ConvGrad",
        "com.microsoft::GatherElementsGrad",
        "com.microsoft::GatherGrad",
        "com.microsoft::GatherNDGrad",
        "com.microsoft::ReluGrad",
        "com.microsoft::Scale",
        "com.microsoft::SigmoidGrad",
        "com.microsoft::SliceGrad",
        "com.microsoft::SoftmaxGrad_13",
        "com.microsoft::TanhGrad",
    )

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        check = _CHECKS.get(node.op_type)
        reason = check(model, node) if check is not None else None
        return True if reason is None else reason

    def build(self, op: Builder, node: ir.Node) -> Made:
        return _FORMULAS[node.op_type](op, node)


def _tanh(op: Builder, node: ir.Node) -> Made:
    dy, y = node.inputs
    return op.Mul(dy, op.Sub(1.0, op.Mul(y, y)))


def _sigmoid(op: Builder, node: ir.Node) -> Made:
    dy, y = node.inputs
    return op.Mul(dy, op.Mul(y, op.Sub(1.0, y)))


def _relu(op: Builder, node: ir.Node) -> Made:
    dy, y = node.inputs
    return op.Where(op.Greater(y, 0.0), dy, 0.0)


def _scale(op: Builder, node: ir.Node) -> Made:
    x, factor = node.inputs
    assert x is not None
    number = op.Cast(factor, to=int(x.dtype or ir.DataType.FLOAT))
    return op.node("Div" if attribute(node, "scale_down", 0) else "Mul", x, number)


def _softmax(op: Builder, node: ir.Node) -> Made:
    dy, y = node.inputs
    axis = np.array([attribute(node, "axis", -1)])
    total = op.ReduceSum(op.Mul(dy, y), axis, keepdims=1)
    return op.Mul(y, op.Sub(dy, total))


def _gather(op: Builder, node: ir.Node) -> Made:
    """Rows of the gathered axis are summed by index: that axis goes first, all others become one."""
    shape, ids, dy = node.inputs
    count, rank = rank_of(ids), rank_of(dy)
    assert count is not None
    assert rank is not None
    total = rank - count + 1
    axis = attribute(node, "axis", 0) % total
    gathered = list(range(axis, axis + count))
    others = [i for i in range(rank) if i not in gathered]
    order = [*gathered, *others]
    # ONNX Runtime's fusions take even a transposition that changes nothing for a real one.
    rows = op.Transpose(dy, perm=order) if order != sorted(order) else dy
    first = op.Gather(shape, op.constant([axis, *[i for i in range(total) if i != axis]]))
    length = op.Slice(first, op.constant([0]), op.constant([1]))
    width = op.ReduceProd(op.Slice(first, op.constant([1]), op.constant([2**31])), keepdims=1)
    flat = op.Reshape(rows, op.Concat(op.constant([-1]), width, axis=0))
    table = op.ConstantOfShape(op.Concat(length, width, axis=0))
    index = op.Reshape(op.Cast(ids, to=int(ir.DataType.INT64)), op.constant([-1]))
    positive = op.Where(op.Less(index, op.constant([0])), op.Add(index, length), index)
    summed = op.FusedEmbeddingGrad(flat, positive, table, op.constant([-1]), _domain="fuseline")
    full = op.Reshape(summed, first)
    return op.Transpose(full, perm=[*range(1, axis + 1), 0, *range(axis + 1, total)]) if axis else full


def _check_gather(model: Model, node: ir.Node) -> str | None:
    dy = node.inputs[2]
    if rank_of(node.inputs[1]) is None or rank_of(dy) is None:
        return "the number of axes is not known"
    return None if dy is not None and dy.dtype in (ir.DataType.FLOAT, None) else "it is not float32"


def _gather_elements(op: Builder, node: ir.Node) -> Made:
    dy, shape, indices = node.inputs
    zeros = op.ConstantOfShape(shape)
    return op.ScatterElements(zeros, indices, dy, axis=attribute(node, "axis", 0), reduction="add")


def _gather_nd(op: Builder, node: ir.Node) -> Made:
    shape, indices, dy = node.inputs
    return op.ScatterND(op.ConstantOfShape(shape), indices, dy, reduction="add")


def _check_gather_nd(model: Model, node: ir.Node) -> str | None:
    return "it has batch axes" if attribute(node, "batch_dims", 0) else None


def _slice(op: Builder, node: ir.Node) -> Made:
    """Zeros around dy. The operator Slice itself, on a range, knows where a slice begins and ends."""
    dy, shape, starts, ends, axes, *_ = node.inputs
    listed, rank = constant(op.model, axes), rank_of(dy)
    assert listed is not None
    assert rank is not None
    before = [op.constant([0])] * rank
    after = list(before)
    for position, axis in enumerate(listed.tolist()):
        at = op.constant([position])
        dim = op.Gather(shape, op.constant([axis]))
        places = op.Range(np.array(0), op.Squeeze(dim), np.array(1))
        bounds = (op.Gather(starts, at), op.Gather(ends, at))
        taken = op.Slice(places, *bounds, op.constant([0]))
        # A slice may be empty, as what partial rotary embeddings leave over can be; it then has no first.
        some = op.Concat(taken, dim, axis=0)
        first = op.Slice(some, op.constant([0]), op.constant([1]))
        before[axis] = first
        after[axis] = op.Sub(dim, op.Add(first, op.Shape(taken)))
    # All axes are padded, if by nothing: ONNX Runtime's transpose optimizer misreads a list of axes.
    padded = op.Pad(dy, op.Concat(*before, *after, axis=0))
    maker = shape.producer() if shape is not None else None
    if maker is not None and is_op(maker, "Shape") and maker.inputs[0] is not None:
        # Nothing else would find out that the paddings add up to this.
        op.declare(padded, dims=dims_of(maker.inputs[0]))
    return padded


def _check_slice(model: Model, node: ir.Node) -> str | None:
    axes = constant(model, node.inputs[4]) if len(node.inputs) > 4 else None
    if rank_of(node.inputs[0]) is None:
        return "the number of axes is not known"
    steps = node.inputs[5] if len(node.inputs) > 5 else None
    if axes is None:
        return "its axes are not constant"
    if steps is not None:
        values = constant(model, steps)
        if values is None or (values != 1).any():
            return "its steps are not 1"
    return None


def _conv(op: Builder, node: ir.Node) -> Made:
    """The weight's gradient is a convolution of the input with dy, batch and channels exchanged."""
    dy, x, weight = node.inputs
    assert weight is not None
    assert weight.shape is not None
    rank = len(weight.shape)
    kernel = [int(str(d)) for d in list(weight.shape)[2:]]
    swap = [1, 0, *range(2, rank)]
    ones = [1] * (rank - 2)
    grad = op.Conv(
        op.Transpose(x, perm=swap),
        op.Transpose(dy, perm=swap),
        pads=list(attribute(node, "pads", [0] * 2 * (rank - 2))),
        strides=list(attribute(node, "dilations", ones)),
        dilations=list(attribute(node, "strides", ones)),
    )
    axes = np.arange(2, rank)
    cut = op.Slice(op.Transpose(grad, perm=swap), op.constant([0] * len(kernel)), kernel, axes)
    bias = op.ReduceSum(dy, np.array([0, *range(2, rank)]), keepdims=0)
    return [None, cut, bias][: len(node.outputs)]


def _check_conv(model: Model, node: ir.Node) -> str | None:
    weight = node.inputs[2]
    if node.outputs[0].name and node.outputs[0].uses():
        return "the gradient of its input is needed"
    if attribute(node, "group", 1) != 1 or attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return "it has groups or automatic padding"
    if weight is None or weight.shape is None or not weight.shape.is_static():
        return "the size of its weight is not known"
    return None


_FORMULAS: dict[str, Callable[[Builder, ir.Node], Made]] = {
    "ConvGrad": _conv,
    "GatherElementsGrad": _gather_elements,
    "GatherGrad": _gather,
    "GatherNDGrad": _gather_nd,
    "ReluGrad": _relu,
    "Scale": _scale,
    "SigmoidGrad": _sigmoid,
    "SliceGrad": _slice,
    "SoftmaxGrad_13": _softmax,
    "TanhGrad": _tanh,
}
_CHECKS: dict[str, Callable[[Model, ir.Node], str | None]] = {
    "ConvGrad": _check_conv,
    "GatherGrad": _check_gather,
    "GatherNDGrad": _check_gather_nd,
    "SliceGrad": _check_slice,
}
