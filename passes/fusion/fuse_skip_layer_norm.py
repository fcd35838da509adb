"""A residual sum and the layer normalisation behind it."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.skip import check_residual, residual, skip_norm

__all__ = ["FuseSkipLayerNorm"]


class FuseSkipLayerNorm(Fusion):
    """LayerNormalization(x+bias+skip) → com.microsoft.SkipLayerNormalization, the sum as a further output"""

    name = "fuse-skip-layer-norm"
    phase = "inference"
    counterpart = "fuse-bias-dropout-add-training"
    produces = ("SkipLayerNormalization",)

    def match(
        self,
        op: Op,
        x: Term,
        skip: Term,
        scale: Term,
        epsilon: Term,
        bias: Term | None = None,
        beta: Term | None = None,
    ) -> tuple[Term, Term]:
        total = residual(op, x, skip, bias)
        return op.LayerNormalization(total, scale, beta, axis=-1, epsilon=epsilon, _label="norm"), total

    def check(
        self,
        x: ir.Value,
        skip: ir.Value,
        scale: ir.Value,
        context: Context,
        bias: ir.Value | None = None,
        beta: ir.Value | None = None,
    ) -> str | None:
        if len(context.node("norm").outputs) > 1:
            return "the statistics of the normalisation are used"
        return check_residual(x, skip, scale, bias, beta)

    def replace(
        self,
        op: Builder,
        x: ir.Value,
        skip: ir.Value,
        scale: ir.Value,
        epsilon: float,
        context: Context,
        bias: ir.Value | None = None,
        beta: ir.Value | None = None,
    ) -> tuple[ir.Value, ir.Value]:
        return skip_norm(op, context, "SkipLayerNormalization", x, skip, scale, beta, bias, epsilon=epsilon)
