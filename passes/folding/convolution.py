"""Scaling and shifting the output channels of a convolution by changing its weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, is_op
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.passes.folding.materialize import add_initializer

__all__ = ["foldable_convolution", "per_channel", "scale_and_shift"]

Array = npt.NDArray[Any]
_LARGEST = 1 << 28


def foldable_convolution(model: Model, value: ir.Value | None) -> ir.Node | None:
    """The convolution with constant weights that makes this value for one user only."""
    node = value.producer() if value is not None else None
    if value is None or node is None or len(value.uses()) != 1 or value.is_graph_output():
        return None
    if not is_op(node, "Conv", "ConvTranspose") or has_references(node):
        return None
    if node.op_type == "ConvTranspose" and node.attributes.get_int("group", 1) != 1:
        return None
    if not _is_float(model, node.inputs[1]):
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return node if bias is None or _is_float(model, bias) else None


def _is_float(model: Model, value: ir.Value | None) -> bool:
    array = constant(model, value, at_most=_LARGEST)
    return array is not None and array.dtype.kind == "f"


def per_channel(array: Array, channels: int, rank: int) -> Array | None:
    """The constant as one number per channel (axis 1 of `rank`), or None if it varies otherwise."""
    if array.size == 1 and array.ndim <= rank:
        return np.broadcast_to(array.reshape(()), (channels,))
    shape = (1,) * (rank - array.ndim) + array.shape
    if len(shape) != rank or shape != (1, channels, *(1,) * (rank - 2)):
        return None
    return array.reshape(channels)


def scale_and_shift(
    model: Model, rewriter: Rewriter, convolution: ir.Node, last: ir.Node, scale: Array, shift: Array
) -> None:
    """Put a convolution with other weights in the place of `convolution` … `last`."""
    graph = convolution.graph
    assert graph is not None
    weight = constant(model, convolution.inputs[1], at_most=_LARGEST)
    assert weight is not None
    old = convolution.inputs[2] if len(convolution.inputs) > 2 else None
    bias = constant(model, old, at_most=_LARGEST) if old is not None else np.zeros(len(scale))
    assert bias is not None
    axis = 0 if convolution.op_type == "Conv" else 1
    factors = scale.astype(np.float64).reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    # In double precision, so that the result is rounded once.
    new_weight = (weight.astype(np.float64) * factors).astype(weight.dtype)
    new_bias = (bias.astype(np.float64) * scale + shift).astype(weight.dtype)
    stem = convolution.inputs[1].name if convolution.inputs[1] is not None else convolution.name
    inputs = [
        convolution.inputs[0],
        add_initializer(graph, rewriter.fresh_name(graph, f"{stem}_folded"), new_weight),
        add_initializer(graph, rewriter.fresh_name(graph, f"{stem}_folded_bias"), new_bias),
    ]
    new = ir.Node("", convolution.op_type, inputs, list(convolution.attributes.values()))
    rewriter.replace([convolution, last], [new], [(last.outputs[0], new.outputs[0])])
