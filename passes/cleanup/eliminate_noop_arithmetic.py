"""The pass `eliminate-noop-arithmetic`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import Dims, dims_of

__all__ = ["EliminateNoopArithmetic"]

# Operator → the neutral operand, and whether it may stand on the left too.
_NEUTRAL = {"Add": (0, True), "Sub": (0, False), "Mul": (1, True), "Div": (1, False), "Pow": (1, False)}
_LARGEST = 4096


class EliminateNoopArithmetic(Pass):
    """x + 0, x − 0, x · 1, x / 1, x ^ 1 → x

    Only where the constant does not broadcast x to a larger shape.
    """

    name = "eliminate-noop-arithmetic"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, *_NEUTRAL):
            source = _unchanged_operand(model, node)
            if source is not None:
                bypass(rewriter, node, source, f"{node.op_type} of a neutral constant")
        return rewriter.changes


def _unchanged_operand(model: Model, node: ir.Node) -> ir.Value | None:
    neutral, commutes = _NEUTRAL[node.op_type]
    for this, other in ((0, 1), (1, 0)) if commutes else ((0, 1),):
        source, operand = node.inputs[this], node.inputs[other]
        array = constant(model, operand, at_most=_LARGEST)
        if source is None or array is None or not (array == neutral).all():
            continue
        if not _broadcasts(array.shape, dims_of(source)):
            return source
    return None


def _broadcasts(constant_shape: tuple[int, ...], dims: Dims | None) -> bool:
    """Whether the constant could make the result larger than the other operand."""
    if not constant_shape:
        return False
    if dims is None or len(constant_shape) > len(dims):
        return True
    tail = dims[len(dims) - len(constant_shape) :]
    return any(c not in (1, d) for c, d in zip(constant_shape, tail, strict=True))
