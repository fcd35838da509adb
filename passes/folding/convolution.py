"""Scaling and shifting what a convolution reads or makes by changing its weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, is_op
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["foldable_convolution", "has_constant_weights", "per_channel", "scale_and_shift", "scale_input"]

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
    return node if has_constant_weights(model, node) else None


def has_constant_weights(model: Model, convolution: ir.Node) -> bool:
    bias = convolution.inputs[2] if len(convolution.inputs) > 2 else None
    return _is_float(model, convolution.inputs[1]) and (bias is None or _is_float(model, bias))


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
) -> bool:
    """Put a convolution with other weights in the place of `convolution` and `last`; False if it stays."""
    weight = constant(model, convolution.inputs[1], at_most=_LARGEST)
    assert weight is not None
    old = convolution.inputs[2] if len(convolution.inputs) > 2 else None
    bias = constant(model, old, at_most=_LARGEST) if old is not None else np.zeros(len(scale))
    assert bias is not None
    axis = 0 if convolution.op_type == "Conv" else 1
    factors = scale.astype(np.float64).reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    # In double precision, so that the result is rounded once.
    with np.errstate(all="ignore"):
        new_weight = (weight.astype(np.float64) * factors).astype(weight.dtype)
        new_bias = (bias.astype(np.float64) * scale + shift).astype(weight.dtype)
    vanishing = np.flatnonzero(_vanishes(weight, scale, new_weight, axis) & ~_is_normal(new_bias))
    if vanishing.size:
        rewriter.reject(last, f"the weights of channel {vanishing[0]} would be too small for {weight.dtype}")
        return False
    if not _permitted(rewriter, last, f"{last.op_type} of a convolution", new_weight, new_bias):
        return False
    op = rewriter.builder(convolution)
    inputs = (convolution.inputs[0], op.constant(new_weight, "weight"), op.constant(new_bias, "bias"))
    [made] = op.copy(convolution, inputs)
    rewriter.replace([convolution, last], op.nodes, [(last.outputs[0], made)])
    return True


def scale_input(
    model: Model, rewriter: Rewriter, first: ir.Node, x: ir.Value, convolution: ir.Node, factor: float
) -> None:
    """Put a convolution of x with other weights in the place of `first`, x·factor, and `convolution`."""
    weight = constant(model, convolution.inputs[1], at_most=_LARGEST)
    assert weight is not None
    with np.errstate(all="ignore"):
        new_weight = (weight.astype(np.float64) * factor).astype(weight.dtype)
    if _vanishes(weight, np.array(factor), new_weight, 0).any():
        rewriter.reject(convolution, f"the weights would be too small for {weight.dtype}")
        return
    if not _permitted(rewriter, convolution, f"convolution of a {first.op_type}", new_weight):
        return
    op = rewriter.builder(convolution)
    [made] = op.copy(convolution, (x, op.constant(new_weight, "weight"), *convolution.inputs[2:]))
    rewriter.replace([first, convolution], op.nodes, [(convolution.outputs[0], made)])


def _vanishes(weight: Array, scale: Array, scaled: Array, axis: int) -> npt.NDArray[np.bool_]:
    """The channels of which nothing is left, or digits only, though they are scaled by something.

    What was too small before loses nothing where it is not scaled down.
    """
    others = tuple(i for i in range(weight.ndim) if i != axis)
    was = np.abs(weight).max(others, initial=0) > 0
    down = (scale != 0) & (np.abs(scale) < 1)
    return np.asarray(was & down & ~_is_normal(np.abs(scaled).max(others, initial=0)))


def _is_normal(array: Array) -> npt.NDArray[np.bool_]:
    return np.asarray(np.abs(array) >= np.finfo(array.dtype).tiny)


def _permitted(rewriter: Rewriter, node: ir.Node, note: str, *weights: Array) -> bool:
    """Whether to go on: weights that are infinite would give another result where it is not."""
    if not all(np.isfinite(w).all() for w in weights):
        rewriter.reject(node, "the weights would not be finite")
        return False
    return rewriter.permit(node, note)
