"""The pass `fold-conv-affine`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.folding.convolution import foldable_convolution, per_channel, scale_and_shift

__all__ = ["FoldConvAffine"]

Array = npt.NDArray[Any]


class FoldConvAffine(Pass):
    """Conv(x) · a + b, constant per channel → Conv(x) with other weights

    Also Sub and Div. For inference: in training a and b would be parameters of their own.
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
                elif rewriter.permit(node, f"{node.op_type} of a convolution"):
                    scale_and_shift(model, rewriter, convolution, node, *_affine(node.op_type, by_channel))
                    break
        return rewriter.changes


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
            return 1 / operand, np.zeros_like(operand)
        case "Add":
            return np.ones_like(operand), operand
    return np.ones_like(operand), -operand
