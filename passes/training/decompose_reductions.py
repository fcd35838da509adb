"""The pass `decompose-reductions`."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from fuseline.engine.analysis.learns import Learns
from fuseline.engine.model import Model
from fuseline.engine.nodes import rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["DecomposeReductions"]


class DecomposeReductions(LocalRewrite):
    """ReduceSumSquare, ReduceL1, ReduceLogSum, ReduceMax, ReduceMin → ReduceSum of elementwise operators

    A maximum or minimum that several elements share passes its gradient on to them in equal parts. A ReduceL2
    over all axes names them, which the gradient builder insists on. What no gradient flows through stays as
    it is.
    """

    name = "decompose-reductions"
    operators = ("ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMax", "ReduceMin")

    def candidates(self, model: Model, rewriter: Rewriter) -> list[ir.Node]:
        return list(rewriter.analysis(Learns).nodes)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        if node.op_type != "ReduceL2":
            return True
        if _axes(node) is not None or bool(node.attributes.get_int("noop_with_empty_axes", 0)):
            return False
        return bool(rank_of(node.inputs[0])) or "how many axes there are is not known"

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x = node.inputs[0]
        assert x is not None
        match node.op_type:
            case "ReduceSumSquare":
                return _reduce(op, node, "ReduceSum", op.Mul(x, x))
            case "ReduceL1":
                return _reduce(op, node, "ReduceSum", op.Abs(x))
            case "ReduceL2":
                return _reduce(op, node, "ReduceL2", x, axes=list(range(rank_of(x) or 0)))
            case "ReduceLogSum":
                return op.Log(_reduce(op, node, "ReduceSum", x))
        return _extreme(op, node, x)


def _extreme(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    """The maximum or minimum as the mean of the elements that equal it, divided before they are added.

    Their sum may be more than the type can hold. No gradient passes through the condition of Where, so that
    finding the extreme needs none. Nothing equals NaN: zero divided by a count of zero is NaN again.
    """
    best = _reduce(op, node, node.op_type, x, keepdims=1)
    chosen = op.Equal(x, best)
    count = _reduce(op, node, "ReduceSum", op.Where(chosen, 1.0, 0.0), keepdims=1)
    return _reduce(op, node, "ReduceSum", op.Div(op.Where(chosen, x, 0.0), count))


def _axes(node: ir.Node) -> Any:
    """The axes that it names, as an input or as an attribute."""
    if len(node.inputs) > 1:
        return node.inputs[1]
    named = node.attributes.get("axes")
    return named.value if named is not None else None


def _reduce(
    op: Builder, node: ir.Node, op_type: str, x: ir.Value, keepdims: int | None = None, axes: Any = None
) -> ir.Value:
    given: dict[str, Any] = {name: a.value for name, a in node.attributes.items() if name != "axes"}
    if keepdims is not None:
        given["keepdims"] = keepdims
    made: ir.Value = op.node(op_type, x, _axes(node) if axes is None else axes, **given)
    return made
