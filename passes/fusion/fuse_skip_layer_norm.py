"""A residual sum and the layer normalisation behind it."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op
from fuseline.passes.fusion.fragments.skip import check_residual, residual, skip_norm

__all__ = ["FuseSkipLayerNorm"]


class FuseSkipLayerNorm(Fusion):
    """LayerNormalization(x+bias+skip) → com.microsoft.SkipLayerNormalization, the sum as a further output"""

    name: ClassVar[str] = "fuse-skip-layer-norm"
    phase: ClassVar[Phase] = "inference"
    counterpart: ClassVar[str | None] = "fuse-bias-dropout-add-training"
    produces: ClassVar[tuple[str, ...]] = ("SkipLayerNormalization",)

    def match(
        self, op: Op, x: Any, skip: Any, scale: Any, epsilon: Any, bias: Any = None, beta: Any = None
    ) -> Any:
        total = residual(op, x, skip, bias)
        return op.LayerNormalization(total, scale, beta, axis=-1, epsilon=epsilon, _label="norm"), total

    def check(self, x: Any, skip: Any, context: Context, bias: Any = None) -> str | None:
        if len(context.node("norm").outputs) > 1:
            return "the statistics of the normalisation are used"
        return check_residual(x, skip, bias)

    def replace(
        self,
        op: Builder,
        x: Any,
        skip: Any,
        scale: Any,
        epsilon: float,
        context: Context,
        bias: Any = None,
        beta: Any = None,
    ) -> Any:
        return skip_norm(op, context, "SkipLayerNormalization", x, skip, scale, beta, bias, epsilon=epsilon)
