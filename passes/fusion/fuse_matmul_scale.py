"""A MatMul and the constant factor behind it."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.nodes import attribute, attributes
from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.values import fits_attribute

__all__ = ["FuseMatmulScale"]


class FuseMatmulScale(Fusion):
    """MatMul(a, b)·α or /α → com.microsoft.FusedMatMul<alpha>(a, b)"""

    name = "fuse-matmul-scale"
    phase = "inference"
    produces = ("FusedMatMul",)

    def match(self, op: Op, a: Term, b: Term, factor: Term, divisor: Term) -> Term:
        product = op.one_of(
            op.MatMul(a, b, _label="product"), op.FusedMatMul(a, b, _domain="com.microsoft", _label="product")
        )
        return op.one_of(op.Mul(product, factor), op.Div(product, divisor))

    def check(
        self, context: Context, factor: ir.Value | None = None, divisor: ir.Value | None = None
    ) -> str | None:
        value = context.scalar(factor if factor is not None else divisor)
        if not value:
            return f"the factor is {value}, not a constant other than 0"
        alpha = _alpha(context, factor, divisor)
        return None if fits_attribute(alpha) else f"alpha would be {alpha:g}, no number of 32 bits"

    def replace(
        self,
        op: Builder,
        a: ir.Value,
        b: ir.Value,
        context: Context,
        factor: ir.Value | None = None,
        divisor: ir.Value | None = None,
    ) -> ir.Value:
        given = attributes(context.node("product")) | {"alpha": _alpha(context, factor, divisor)}
        fused: ir.Value = op.FusedMatMul(a, b, **given, _domain="com.microsoft")
        return fused


def _alpha(context: Context, factor: ir.Value | None, divisor: ir.Value | None) -> float:
    scale = context.scalar(factor) if factor is not None else 1.0 / (context.scalar(divisor) or 1.0)
    return float(attribute(context.node("product"), "alpha", 1.0) * (scale or 1.0))
