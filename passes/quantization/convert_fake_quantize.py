"""The pass `convert-fake-quantize`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import constant, scalar
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, function_graphs, is_op
from fuseline.engine.pass_ import Pass
from fuseline.engine.quantization.grid import Array
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["ConvertFakeQuantize"]


@dataclass(frozen=True)
class _Grid:
    """A value on a grid: what it was before, its scale, and the integers in use."""

    source: ir.Value
    scale: Array
    least: int
    most: int


class ConvertFakeQuantize(Pass):
    """MatMul of fake-quantized x and w → com.microsoft.MatMulIntegerToFloat(QuantizeLinear(x), int8 w)

    What was trained with the noise of quantization becomes the integer product it stood for; Gemm likewise.
    """

    name = "convert-fake-quantize"
    phase = "inference"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        functions = function_graphs(model)
        for node in list(model.nodes()):
            if not is_op(node, "MatMul", "Gemm") or node.graph in functions:
                continue
            grids = [_grid(model, v) for v in node.inputs[:2]]
            if grids[0] is None and grids[1] is None:
                continue
            reason = _refusal(model, node, grids)
            if reason is not None:
                rewriter.reject(node, reason)
            elif rewriter.permit(node, self.summary()):
                assert grids[0] is not None
                assert grids[1] is not None
                _convert(model, rewriter, node, grids[0], grids[1])
        return rewriter.changes


def _grid(model: Model, value: ir.Value | None) -> _Grid | None:
    """Mul(Clip(Round(Div(x, s)), least, most), s), with a Transpose of the whole behind it at most."""
    product = value.producer() if value is not None else None
    transposed = is_op(product, "Transpose")
    if transposed:
        assert product is not None
        below = product.inputs[0]
        found = _grid(model, below)
        content = None if found is None else constant(model, found.source, at_most=None)
        if found is None or content is None or content.ndim != 2 or found.scale.size == 1:
            return None
        return _Grid(found.source, found.scale.T, found.least, found.most)
    if not is_op(product, "Mul"):
        return None
    assert product is not None
    clip = _producer(product.inputs[0], "Clip")
    rounded = _producer(clip.inputs[0], "Round") if clip is not None else None
    division = _producer(rounded.inputs[0], "Div") if rounded is not None else None
    if clip is None or division is None or division.inputs[1] is not product.inputs[1]:
        return None
    scale = _scale(model, division.inputs[1])
    least, most = (scalar(model, clip.inputs[i]) for i in (1, 2))
    if scale is None or least is None or most is None or division.inputs[0] is None:
        return None
    return _Grid(division.inputs[0], scale, int(least), int(most))


def _scale(model: Model, value: ir.Value | None) -> Array | None:
    """A constant, or the exponential of one: what is learned is the logarithm."""
    logarithm = _producer(value, "Exp")
    if logarithm is None:
        return constant(model, value, at_most=None)
    content = constant(model, logarithm.inputs[0], at_most=None)
    return None if content is None else np.exp(content)


def _producer(value: ir.Value | None, operator: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if is_op(node, operator) else None


def _refusal(model: Model, node: ir.Node, grids: list[_Grid | None]) -> str | None:
    x, w = grids
    if x is None or w is None:
        return "only one of its factors is on a grid"
    if x.scale.size != 1:
        return f"the activation has {x.scale.size} scales, not one"
    if constant(model, w.source, at_most=None) is None:
        return f"{w.source.name!r} is not a constant weight"
    if min(x.least, w.least) < -128 or max(x.most, w.most) > 127:
        return f"the integers {x.least}…{x.most} and {w.least}…{w.most} do not fit 8 bits"
    if (
        attribute(node, "transA", 0)
        or attribute(node, "alpha", 1.0) != 1.0
        or attribute(node, "beta", 1.0) != 1.0
    ):
        return "it transposes or scales"
    if (x.scale <= 0).any() or (w.scale <= 0).any():
        return "a scale is not positive"
    return None


def _convert(model: Model, rewriter: Rewriter, node: ir.Node, x: _Grid, w: _Grid) -> None:
    op = Builder(rewriter, node)
    weight = constant(model, w.source, at_most=None)
    assert weight is not None
    turned = is_op(node.inputs[1].producer() if node.inputs[1] is not None else None, "Transpose")
    scale = w.scale.T if turned else w.scale
    integers = np.clip(np.rint(weight / scale), w.least, w.most).astype(np.int8)
    if turned or attribute(node, "transB", 0):
        integers, scale = integers.T, scale.T
    columns = np.broadcast_to(np.reshape(scale, (1, -1)), (1, integers.shape[1])).reshape(-1)
    step = op.constant(np.asarray(x.scale, np.float32).reshape(()), "input_scale")
    zero = op.constant(np.array(0, np.int8), "input_zero")
    source = x.source
    if (x.least, x.most) != (-128, 127):
        # QuantizeLinear saturates at the ends of the type, not at those of a shorter grid.
        reach = np.float32(x.scale.reshape(()))
        source = op.Clip(source, np.float32(x.least) * reach, np.float32(x.most) * reach)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    made = op.MatMulIntegerToFloat(
        op.QuantizeLinear(source, step, zero),
        op.constant(np.ascontiguousarray(integers), "weight"),
        step,
        op.constant(np.ascontiguousarray(columns, np.float32), "scale"),
        zero,
        None,
        bias,
        _domain="com.microsoft",
    )
    rewriter.replace([node], op.nodes, [(node.outputs[0], made)])
