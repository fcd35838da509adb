"""A residual sum and the root-mean-square normalisation behind it."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.skip import check_residual, skip_norm

__all__ = ["FuseSkipRmsNorm"]


class FuseSkipRmsNorm(Fusion):
    """SimplifiedLayerNormalization(x+skip) → com.microsoft.SkipSimplifiedLayerNormalization

    A bias in the sum stays outside: the kernel of ONNX Runtime 1.19 takes one, and leaves it out.
    """

    name = "fuse-skip-rms-norm"
    phase = "inference"
    counterpart = "fuse-rms-norm-training"
    produces = ("SkipSimplifiedLayerNormalization",)

    def match(self, op: Op, x: Term, skip: Term, scale: Term, epsilon: Term) -> tuple[Term, Term]:
        total = op.Add(x, skip)
        return op.SimplifiedLayerNormalization(total, scale, axis=-1, epsilon=epsilon), total

    def check(self, x: ir.Value, skip: ir.Value, scale: ir.Value) -> str | None:
        return check_residual(x, skip, scale)

    def replace(
        self, op: Builder, x: ir.Value, skip: ir.Value, scale: ir.Value, epsilon: float, context: Context
    ) -> tuple[ir.Value, ir.Value]:
        return skip_norm(op, context, "SkipSimplifiedLayerNormalization", x, skip, scale, epsilon=epsilon)
