"""Bias and Gelu with their own backward."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op
from fuseline.passes.fusion.fragments.native import native
from fuseline.passes.fusion.fragments.values import broadcasts_last

__all__ = ["FuseBiasGeluTraining"]


class FuseBiasGeluTraining(Fusion):
    """com.microsoft.Gelu(x+bias) → fuseline.FusedBiasGelu(x, bias), FastGelu → FusedBiasGeluTanh"""

    name: ClassVar[str] = "fuse-bias-gelu-training"
    phase: ClassVar[Phase] = "pre-gradient"
    produces: ClassVar[tuple[str, ...]] = ("FusedBiasGelu", "FusedBiasGeluTanh")

    def match(self, op: Op, x: Any, bias: Any) -> Any:
        return op.node(("Gelu", "FastGelu"), op.Add(x, bias), _domain="com.microsoft", _label="gelu")

    def check(self, x: Any, bias: Any) -> str | None:
        if not broadcasts_last(bias, x):
            return f"{bias.name!r} is not known to be a vector along the last axis"
        return None

    def replace(self, op: Builder, x: Any, bias: Any, context: Context) -> Any:
        tanh = context.node("gelu").op_type == "FastGelu"
        return native(op, "FusedBiasGeluTanh" if tanh else "FusedBiasGelu", x, bias)
