"""Layer normalisation."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.norm import layer_norm
from fuseline.passes.fusion.fragments.values import broadcasts_last, is_last_axis

__all__ = ["FuseLayerNorm"]


class FuseLayerNorm(Fusion):
    """(x−mean)/√(var+ε)·scale+bias → LayerNormalization(x, scale, bias)

    The operator is ONNX's own since opset 17; ONNX Runtime also has it under older ones, to be asked for.
    """

    name = "fuse-layer-norm"
    produces = ("LayerNormalization",)
    any_opset: bool = False

    def match(self, op: Op, x: Term, axes: Term, epsilon: Term, scale: Term, bias: Term) -> Term:
        scaled = op.Mul(op.optional(op.Cast, layer_norm(op, x, axes, epsilon)), scale)
        return op.one_of(op.Add(scaled, bias), scaled)

    def check(
        self,
        x: ir.Value,
        axes: ir.Value,
        epsilon: ir.Value,
        scale: ir.Value,
        context: Context,
        bias: ir.Value | None = None,
    ) -> str | None:
        if context.model.opset() < 17 and not self.any_opset:
            return f"LayerNormalization needs opset 17, the model has {context.model.opset()}"
        if x.dtype == ir.DataType.FLOAT16 and context.model.opset() < 11:
            return "ONNX Runtime writes LayerNormalization of 16-bit floats out, which needs opset 11"
        if context.scalar(epsilon) is None:
            return f"epsilon {epsilon.name!r} is not a constant"
        for value in (scale, bias):
            if value is not None and not broadcasts_last(value, x):
                return f"{value.name!r} is not known to be a vector along the last axis"
        return is_last_axis(context, axes, x)

    def replace(
        self,
        op: Builder,
        x: ir.Value,
        epsilon: ir.Value,
        scale: ir.Value,
        context: Context,
        bias: ir.Value | None = None,
    ) -> ir.Value:
        return op.LayerNormalization(x, scale, bias, axis=-1, epsilon=context.scalar(epsilon))
