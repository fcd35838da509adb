"""The pass `lift-grouped-convolution`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["LiftGroupedConvolution"]


class LiftGroupedConvolution(LocalRewrite):
    """Conv in one dimension → Conv in two, of height 1

    ONNX Runtime's gradient of a grouped convolution in one dimension corrupts memory.
    """

    name = "lift-grouped-convolution"
    operators = ("Conv",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        if attribute(node, "group", 1) == 1:
            return False
        rank = rank_of(node.inputs[1]) or rank_of(node.inputs[0])
        return rank == 3

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x, weight, *bias = node.inputs
        axis = np.array([2])
        flat = op.Conv(op.Unsqueeze(x, axis), op.Unsqueeze(weight, axis), *bias, **_lifted(node))
        return op.Squeeze(flat, axis)


def _lifted(node: ir.Node) -> dict[str, Any]:
    given: dict[str, Any] = {name: a.value for name, a in node.attributes.items()}
    for name in ("kernel_shape", "strides", "dilations"):
        if name in given:
            given[name] = [1, *given[name]]
    if "pads" in given:
        before, after = given["pads"]
        given["pads"] = [0, before, 0, after]
    return given
