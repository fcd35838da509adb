"""A residual sum and the root-mean-square normalisation behind it."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op
from fuseline.passes.fusion.fragments.skip import check_residual, residual, skip_norm

__all__ = ["FuseSkipRmsNorm"]


class FuseSkipRmsNorm(Fusion):
    """SimplifiedLayerNormalization(x+skip) → com.microsoft.SkipSimplifiedLayerNormalization"""

    name: ClassVar[str] = "fuse-skip-rms-norm"
    phase: ClassVar[Phase] = "inference"
    counterpart: ClassVar[str | None] = "fuse-rms-norm-training"
    produces: ClassVar[tuple[str, ...]] = ("SkipSimplifiedLayerNormalization",)

    def match(self, op: Op, x: Any, skip: Any, scale: Any, epsilon: Any, bias: Any = None) -> Any:
        total = residual(op, x, skip, bias)
        return op.SimplifiedLayerNormalization(total, scale, axis=-1, epsilon=epsilon), total

    def check(self, x: Any, skip: Any, bias: Any = None) -> str | None:
        return check_residual(x, skip, bias)

    def replace(
        self, op: Builder, x: Any, skip: Any, scale: Any, epsilon: float, context: Context, bias: Any = None
    ) -> Any:
        return skip_norm(
            op, context, "SkipSimplifiedLayerNormalization", x, skip, scale, bias, epsilon=epsilon
        )
