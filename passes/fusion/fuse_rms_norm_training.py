"""Root-mean-square normalisation with its own backward."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.native import native
from fuseline.passes.fusion.fragments.norm import rms_norm
from fuseline.passes.fusion.fragments.values import broadcasts_last, is_last_axis

__all__ = ["FuseRmsNormTraining"]


class FuseRmsNormTraining(Fusion):
    """x/√(mean(x²)+ε)·scale → fuseline.FusedRmsNorm(x, scale), with offset 1 where it is ·(1+scale)"""

    name = "fuse-rms-norm-training"
    phase = "pre-gradient"
    produces = ("FusedRmsNorm",)

    def match(self, op: Op, x: Term, axes: Term, epsilon: Term, scale: Term) -> Term:
        normed = op.optional(op.Cast, rms_norm(op, x, axes, epsilon))
        return op.Mul(normed, op.one_of(op.Add(scale, 1.0), scale, pick="plain"))

    def check(
        self, x: ir.Value, axes: ir.Value, epsilon: ir.Value, scale: ir.Value, context: Context
    ) -> str | None:
        if context.scalar(epsilon) is None:
            return f"epsilon {epsilon.name!r} is not a constant"
        if not broadcasts_last(scale, x):
            return f"{scale.name!r} is not known to be a vector along the last axis"
        return is_last_axis(context, axes, x)

    def replace(
        self, op: Builder, x: ir.Value, epsilon: ir.Value, scale: ir.Value, plain: int, context: Context
    ) -> ir.Value:
        offset = 0.0 if plain else 1.0
        return native(op, "FusedRmsNorm", x, scale, epsilon=context.scalar(epsilon), offset=offset)
