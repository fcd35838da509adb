"""The pass `resolve-resize`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["ResolveResize"]


class ResolveResize(LocalRewrite):
    """Resize to the size that it already has → Identity

    ONNX Runtime has no kernel for the gradient of Resize on the CPU; a model that interpolates its position
    tables at its own image size needs none.
    """

    name = "resolve-resize"
    operators = ("Resize",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        before, after = node.inputs[0], node.outputs[0]
        if before is None or before.shape is None or after.shape is None:
            return "its shapes are not known"
        if not before.shape.is_static() or before.shape != after.shape:
            return f"it changes the size from {before.shape} to {after.shape}"
        if attribute(node, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
            return "it crops"
        return True

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        return op.Identity(node.inputs[0])
