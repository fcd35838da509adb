"""The pass `decompose-pooling`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.analysis.learns import Learns
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.rewriting.windows import Window, windows_of
from fuseline.engine.shapes.dims import dims_of

__all__ = ["DecomposePooling"]


class DecomposePooling(LocalRewrite):
    """AveragePool, LRN, MaxPool of images of unknown size → sums and maxima of slices, axis by axis

    ONNX Runtime's gradients of pooling read the sizes of the image from the graph: that of AveragePool gives
    another shape, or another batch, where one of them is free; that of MaxPool where height or width is.
    LRN has no gradient.
    """

    name = "decompose-pooling"
    operators = ("AveragePool", "LRN", "MaxPool")

    def candidates(self, model: Model, rewriter: Rewriter) -> list[ir.Node]:
        return list(rewriter.analysis(Learns).nodes)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        if node.op_type == "LRN":
            return rank_of(node.inputs[0]) is not None or "the number of axes is not known"
        if node.op_type == "MaxPool":
            dims = dims_of(node.inputs[0])
            if dims is not None and all(isinstance(size, int) for size in dims[1:]):
                return False
            if len(node.outputs) > 1 and node.outputs[1].uses():
                return "where the maxima are is read"
        windows = windows_of(node)
        return windows if isinstance(windows, str) else True

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x = node.inputs[0]
        assert x is not None
        if node.op_type == "LRN":
            return _lrn(op, node, x)
        windows = windows_of(node)
        assert not isinstance(windows, str)
        # The last axis first: of equal maxima the first one counts, row by row.
        for window in reversed(windows):
            x = _maximum(op, x, window) if node.op_type == "MaxPool" else _mean(op, node, x, window)
        return x


def _mean(op: Builder, node: ir.Node, x: ir.Value, window: Window) -> ir.Value:
    dims = dims_of(x) or ()
    whole = dims[window.axis] == window.size and not (window.before or window.after)
    if whole and window.dilation == 1:
        return op.ReduceMean(x, [window.axis], keepdims=1)
    total = window.combine(op, x, op.Add, 0.0)
    count = window.elements(op, x, padding=bool(attribute(node, "count_include_pad", 0)))
    return op.Div(total, float(count) if isinstance(count, int) else count)


def _maximum(op: Builder, x: ir.Value, window: Window) -> ir.Value:
    def larger(best: ir.Value, other: ir.Value) -> ir.Value:
        return op.Where(op.Greater(other, best), other, best)

    return window.combine(op, x, larger, -np.inf)


def _lrn(op: Builder, node: ir.Node, x: ir.Value) -> ir.Value:
    """x / (bias + alpha/size · Σ x² of the channels around)^beta"""
    size = int(attribute(node, "size", 1))
    around = Window(1, size, before=(size - 1) // 2, after=size // 2)
    total = around.combine(op, op.Mul(x, x), op.Add, 0.0)
    share = float(attribute(node, "alpha", 1e-4)) / size
    base = op.Add(op.Mul(total, share), float(attribute(node, "bias", 1.0)))
    return op.Div(x, op.Pow(base, float(attribute(node, "beta", 0.75))))
