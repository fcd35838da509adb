"""The pass `fold-conv-batchnorm`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs, has_references, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.passes.folding.convolution import foldable_convolution, scale_and_shift

__all__ = ["FoldConvBatchnorm"]


class FoldConvBatchnorm(Pass):
    """BatchNormalization(Conv(x)) → Conv(x) with other weights

    For inference: in training the statistics change. ConvTranspose is folded too, if it has one group.
    """

    name = "fold-conv-batchnorm"
    phase = "inference"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        in_functions = function_graphs(model)
        for node in nodes_of(model, "BatchNormalization"):
            convolution = foldable_convolution(model, node.inputs[0])
            if convolution is None or node.graph in in_functions or not _is_inference(node, rewriter):
                continue
            constants = [constant(model, v) for v in node.inputs[1:5]]
            if any(c is None for c in constants):
                rewriter.reject(node, "its scale, bias, mean or variance is not constant")
                continue
            scale, bias, mean, variance = (np.asarray(c, np.float64) for c in constants)
            with np.errstate(all="ignore"):
                factor = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
            scale_and_shift(model, rewriter, convolution, node, factor, bias - mean * factor)
        return rewriter.changes


def _is_inference(node: ir.Node, rewriter: Rewriter) -> bool:
    if has_references(node):
        return False
    if node.attributes.get_int("training_mode", 0):
        rewriter.reject(node, "it is in training mode")
        return False
    if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
        rewriter.reject(node, "its statistics are used")
        return False
    return bool(node.attributes.get_int("spatial", 1))
