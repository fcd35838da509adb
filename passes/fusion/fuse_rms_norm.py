"""Root-mean-square normalisation."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.native import native
from fuseline.passes.fusion.fragments.norm import rms_norm
from fuseline.passes.fusion.fragments.values import broadcasts_last, is_last_axis, last_dim

__all__ = ["FuseRmsNorm", "FuseRmsNormTraining"]


class FuseRmsNorm(Fusion):
    """x/√(mean(x²)+ε)·scale → SimplifiedLayerNormalization(x, scale)

    A scale that was folded away because it is 1 comes back as a constant.
    """

    name = "fuse-rms-norm"
    phase = "inference"
    produces = ("SimplifiedLayerNormalization",)

    def match(self, op: Op, x: Term, axes: Term, epsilon: Term, scale: Term) -> Term:
        normed = rms_norm(op, x, axes, epsilon)
        return op.one_of(op.Mul(op.optional(op.Cast, normed), scale), normed)

    def check(
        self, x: ir.Value, axes: ir.Value, epsilon: ir.Value, context: Context, scale: ir.Value | None = None
    ) -> str | None:
        if context.scalar(epsilon) is None:
            return f"epsilon {epsilon.name!r} is not a constant"
        if scale is None and last_dim(x) is None:
            return f"the width of {x.name!r} is not known"
        if scale is not None and not broadcasts_last(scale, x):
            return f"{scale.name!r} is not known to be a vector along the last axis"
        if scale is not None and scale.dtype != x.dtype:
            return f"{scale.name!r} is {scale.dtype}, and {x.name!r} is {x.dtype}"
        return is_last_axis(context, axes, x)

    def replace(
        self,
        op: Builder,
        x: ir.Value,
        epsilon: ir.Value,
        context: Context,
        scale: ir.Value | None = None,
    ) -> ir.Value:
        if scale is None:
            dtype = x.dtype.numpy() if x.dtype is not None else np.float32
            scale = op.constant(np.ones(last_dim(x) or 0, dtype), "scale")
        return op.SimplifiedLayerNormalization(
            x, scale, axis=-1, epsilon=context.scalar(epsilon), stash_type=1
        )


class FuseRmsNormTraining(FuseRmsNorm, target="training"):
    """x/√(mean(x²)+ε)·scale → fuseline.FusedRmsNorm(x, scale), with offset 1 where it is ·(1+scale)"""

    produces = ("FusedRmsNorm",)

    def match(self, op: Op, x: Term, axes: Term, epsilon: Term, scale: Term) -> Term:
        # A scale that is learned cannot have been folded away; one that is stored as its distance from 1 can
        # be read so, without the sum.
        normed = op.optional(op.Cast, rms_norm(op, x, axes, epsilon))
        return op.Mul(normed, op.one_of(op.Add(scale, 1.0), scale, pick="plain"))

    def replace(
        self,
        op: Builder,
        x: ir.Value,
        epsilon: ir.Value,
        context: Context,
        scale: ir.Value | None = None,
        plain: int = 1,
    ) -> ir.Value:
        offset = 0.0 if plain else 1.0
        return native(op, "FusedRmsNorm", x, scale, epsilon=context.scalar(epsilon), offset=offset)
