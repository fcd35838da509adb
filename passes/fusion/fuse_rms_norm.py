"""Root-mean-square normalisation."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op
from fuseline.passes.fusion.fragments.norm import rms_norm
from fuseline.passes.fusion.fragments.values import broadcasts_last, is_last_axis

__all__ = ["FuseRmsNorm"]


class FuseRmsNorm(Fusion):
    """x/√(mean(x²)+ε)·scale → SimplifiedLayerNormalization(x, scale)"""

    name: ClassVar[str] = "fuse-rms-norm"
    phase: ClassVar[Phase] = "inference"
    counterpart: ClassVar[str | None] = "fuse-rms-norm-training"
    produces: ClassVar[tuple[str, ...]] = ("SimplifiedLayerNormalization",)

    def match(self, op: Op, x: Any, axes: Any, epsilon: Any, scale: Any) -> Any:
        return op.Mul(op.optional(op.Cast, rms_norm(op, x, axes, epsilon)), scale)

    def check(self, x: Any, axes: Any, epsilon: Any, scale: Any, context: Context) -> str | None:
        if context.scalar(epsilon) is None:
            return f"epsilon {epsilon.name!r} is not a constant"
        if not broadcasts_last(scale, x):
            return f"{scale.name!r} is not known to be a vector along the last axis"
        return is_last_axis(context, axes, x)

    def replace(self, op: Builder, x: Any, epsilon: Any, scale: Any, context: Context) -> Any:
        return op.SimplifiedLayerNormalization(
            x, scale, axis=-1, epsilon=context.scalar(epsilon), stash_type=1
        )
