"""The pass `decompose-reductions`."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["DecomposeReductions"]


_COMPARING = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Shape"}


class DecomposeReductions(LocalRewrite):
    """ReduceSumSquare, ReduceL1, ReduceLogSum, ReduceMax, ReduceMin → ReduceSum of elementwise operators

    A maximum or minimum that several elements share passes its gradient on to them in equal parts.
    """

    name = "decompose-reductions"
    operators = ("ReduceSumSquare", "ReduceL1", "ReduceLogSum", "ReduceMax", "ReduceMin")

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        x = node.inputs[0]
        if x is None or x.dtype is None or not x.dtype.is_floating_point():
            return False
        # Whoever only compares with an extreme asks for no gradient of it.
        return not all(user.op_type in _COMPARING for user, _ in node.outputs[0].uses())

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x = node.inputs[0]
        assert x is not None
        match node.op_type:
            case "ReduceSumSquare":
                return _reduce(op, node, "ReduceSum", op.Mul(x, x))
            case "ReduceL1":
                return _reduce(op, node, "ReduceSum", op.Abs(x))
            case "ReduceLogSum":
                return op.Log(_reduce(op, node, "ReduceSum", x))
        return _extreme(op, node, x)


def _extreme(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    """The maximum or minimum as the mean of the elements that equal it.

    No gradient passes through the condition of Where, so that finding the extreme needs none.
    """
    best = _reduce(op, node, node.op_type, x, keepdims=1)
    chosen = op.Equal(x, best)
    count = _reduce(op, node, "ReduceSum", op.Where(chosen, 1.0, 0.0))
    total = _reduce(op, node, "ReduceSum", op.Where(chosen, x, 0.0))
    return op.Div(total, count)


def _reduce(op: Builder, node: ir.Node, op_type: str, x: ir.Value, keepdims: int | None = None) -> ir.Value:
    given: dict[str, Any] = {name: a.value for name, a in node.attributes.items()}
    if keepdims is not None:
        given["keepdims"] = keepdims
    axes = node.inputs[1] if len(node.inputs) > 1 else given.pop("axes", None)
    made: ir.Value = op.node(op_type, x, axes, **given)
    return made
