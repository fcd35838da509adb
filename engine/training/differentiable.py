"""Which operators have a gradient, and along which edges a gradient flows."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.training.definitions import DEFINITIONS
from fuseline.engine.training.gradients import loss_name

__all__ = [
    "BUILT_IN",
    "gradient_operators",
    "has_gradient",
    "nodes_on_gradient_path",
    "qualified",
    "register",
]

BUILT_IN = frozenset(
    [
        "Abs",
        "Add",
        "AveragePool",
        "Cast",
        "Clip",
        "Concat",
        "Conv",
        "Cos",
        "Div",
        "Dropout",
        "Erf",
        "Exp",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Gelu",
        "Gemm",
        "GlobalAveragePool",
        "Identity",
        "LayerNormalization",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "MatMul",
        "Max",
        "MaxPool",
        "Min",
        "Mul",
        "Neg",
        "Pad",
        "Pow",
        "Reciprocal",
        "ReduceL2",
        "ReduceLogSumExp",
        "ReduceMean",
        "ReduceSum",
        "Relu",
        "Reshape",
        "ScatterElements",
        "ScatterND",
        "Sigmoid",
        "SimplifiedLayerNormalization",
        "Sin",
        "Slice",
        "Softmax",
        "SoftmaxCrossEntropyLoss",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Tanh",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
        "com.microsoft::BatchNormInternal",
        "com.microsoft::FastGelu",
        "com.microsoft::Gelu",
        "com.microsoft::QuickGelu",
        "com.microsoft::SoftmaxCrossEntropyLossInternal",
    ]
)
"""Operators for which ONNX Runtime 1.19.2 builds a gradient and has the kernels on the CPU."""

_INDICES = {
    "Clip": {1, 2},
    "CumSum": {1},
    "Dropout": {1, 2},
    "Expand": {1},
    "Gather": {1},
    "GatherElements": {1},
    "GatherND": {1},
    "Pad": {1, 2, 3},
    "Reshape": {1},
    "ScatterElements": {1},
    "ScatterND": {1},
    "Slice": {1, 2, 3, 4},
    "SoftmaxCrossEntropyLoss": {1, 2},
    "Tile": {1},
    "TopK": {1},
    "Where": {0},
}
"""Inputs through which no gradient flows: shapes, indices, conditions."""

_DISCRETE = frozenset(
    ["Shape", "Size", "NonZero", "ArgMax", "ArgMin", "Range", "ConstantOfShape", "OneHot", "EyeLike"]
)


def gradient_operators() -> set[str]:
    """All operators with a gradient, `domain::Op` outside the standard domain."""
    return {*BUILT_IN, *DEFINITIONS, *_registered}


_registered: set[str] = set()


def register(*operators: str) -> None:
    """Say that the gradient of an operator (`domain::Op`) is defined elsewhere."""
    _registered.update(operators)


def qualified(node: ir.Node) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def has_gradient(node: ir.Node) -> bool:
    return qualified(node) in gradient_operators()


def nodes_on_gradient_path(model: Model) -> list[ir.Node]:
    """The nodes between a trainable parameter and the loss through which a gradient has to flow, in order."""
    loss = next(o for o in model.graph.outputs if o.name == loss_name(model))
    needed = _backward(loss)
    trained = {v for n in model.parameters.trainable_values() if (v := model.graph.initializers.get(n))}
    trained |= {v for v in model.graph.inputs if model.parameters.is_trainable(v.name)}
    path = []
    for node in model.graph:
        if node in needed and any(v in trained for v in _differentiable_inputs(node)):
            path.append(node)
            trained.update(v for v in node.outputs if _is_float(v))
    return path


def _backward(loss: ir.Value) -> set[ir.Node]:
    seen: set[ir.Node] = set()
    pending = [loss]
    while pending:
        producer = pending.pop().producer()
        if producer is None or producer in seen:
            continue
        seen.add(producer)
        pending.extend(_differentiable_inputs(producer))
    return seen


def _differentiable_inputs(node: ir.Node) -> Iterator[ir.Value]:
    if node.op_type in _DISCRETE:
        return
    stopped = _INDICES.get(node.op_type, set())
    for index, value in enumerate(node.inputs):
        if value is not None and index not in stopped and _is_float(value):
            yield value


def _is_float(value: ir.Value) -> bool:
    """Whether it may carry a gradient; an unknown type may."""
    return value.dtype is None or value.dtype.is_floating_point()
