"""The pass `fold-conv-affine`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs, has_references, is_op, nodes_of, only_user, rank_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.folding.convolution import (
    foldable_convolution,
    has_constant_weights,
    per_channel,
    scale_and_shift,
    scale_input,
)

__all__ = ["FoldConvAffine"]

Array = npt.NDArray[Any]


class FoldConvAffine(Pass):
    """Conv(x) · a + b, constant per channel → Conv(x) with other weights

    Also Sub and Div, and Conv(x · a) or Conv(x / a) of one number; a shift in front stays, since padding is
    not shifted. For inference: in training a and b would be parameters of their own.
    """

    name = "fold-conv-affine"
    phase = "inference"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        in_functions = function_graphs(model)
        for node in nodes_of(model, "Mul", "Add", "Sub", "Div"):
            if node.graph in in_functions:
                continue
            for this, other in ((0, 1), (1, 0)) if node.op_type in ("Mul", "Add") else ((0, 1),):
                convolution = foldable_convolution(model, node.inputs[this])
                operand = constant(model, node.inputs[other]) if convolution is not None else None
                if convolution is None or operand is None:
                    continue
                by_channel = _per_channel(convolution, operand)
                if by_channel is None:
                    rewriter.reject(node, "the constant is not one number per channel")
                elif scale_and_shift(model, rewriter, convolution, node, *_affine(node.op_type, by_channel)):
                    break
        for node in nodes_of(model, "Conv", "ConvTranspose"):
            if node.graph not in in_functions and not has_references(node):
                _fold_in_front(model, rewriter, node)
        return rewriter.changes


def _fold_in_front(model: Model, rewriter: Rewriter, convolution: ir.Node) -> None:
    """The number that its input is multiplied by, into its weights."""
    scaled = convolution.inputs[0]
    node = scaled.producer() if scaled is not None else None
    if scaled is None or node is None or not is_op(node, "Mul", "Div") or node.graph is not convolution.graph:
        return
    for this, other in ((0, 1), (1, 0)) if node.op_type == "Mul" else ((0, 1),):
        number, x = constant(model, node.inputs[other], at_most=1), node.inputs[this]
        if number is None or number.size != 1 or x is None:
            continue
        if number.ndim > (rank_of(x) or 0):
            rewriter.reject(convolution, f"the number has {number.ndim} axes, and may give its input more")
        elif not has_constant_weights(model, convolution):
            rewriter.reject(convolution, "its weights are not constant")
        elif only_user(scaled) is not convolution:
            rewriter.reject(convolution, "the product in front of it is used elsewhere, too")
        else:
            factor, _ = _affine(node.op_type, number.reshape(()))
            scale_input(model, rewriter, node, x, convolution, float(factor))
        return


def _per_channel(convolution: ir.Node, operand: Array) -> Array | None:
    weight = dims_of(convolution.inputs[1])
    channels = weight[0 if convolution.op_type == "Conv" else 1] if weight is not None else None
    if weight is None or not isinstance(channels, int):
        return None
    return per_channel(operand, channels, len(weight))


def _affine(op_type: str, operand: Array) -> tuple[Array, Array]:
    operand = operand.astype(np.float64)
    match op_type:
        case "Mul":
            return operand, np.zeros_like(operand)
        case "Div":
            with np.errstate(divide="ignore"):
                return 1 / operand, np.zeros_like(operand)
        case "Add":
            return np.ones_like(operand), operand
    return np.ones_like(operand), -operand
