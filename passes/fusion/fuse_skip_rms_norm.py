"""A residual sum and the root-mean-square normalisation behind it."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.skip import check_residual, residual, skip_norm

__all__ = ["FuseSkipRmsNorm"]


class FuseSkipRmsNorm(Fusion):
    """SimplifiedLayerNormalization(x+skip) → com.microsoft.SkipSimplifiedLayerNormalization"""

    name = "fuse-skip-rms-norm"
    phase = "inference"
    counterpart = "fuse-rms-norm-training"
    produces = ("SkipSimplifiedLayerNormalization",)

    def match(
        self, op: Op, x: Term, skip: Term, scale: Term, epsilon: Term, bias: Term | None = None
    ) -> tuple[Term, Term]:
        total = residual(op, x, skip, bias)
        return op.SimplifiedLayerNormalization(total, scale, axis=-1, epsilon=epsilon), total

    def check(self, x: ir.Value, skip: ir.Value, bias: ir.Value | None = None) -> str | None:
        return check_residual(x, skip, bias)

    def replace(
        self,
        op: Builder,
        x: ir.Value,
        skip: ir.Value,
        scale: ir.Value,
        epsilon: float,
        context: Context,
        bias: ir.Value | None = None,
    ) -> tuple[ir.Value, ir.Value]:
        return skip_norm(
            op, context, "SkipSimplifiedLayerNormalization", x, skip, scale, bias, epsilon=epsilon
        )
