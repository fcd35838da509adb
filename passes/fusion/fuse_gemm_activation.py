"""A Gemm and the activation behind it."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op

__all__ = ["FuseGemmActivation"]


class FuseGemmActivation(Fusion):
    """Relu(Gemm(a, b, c)) → com.microsoft.FusedGemm<activation="Relu">; Sigmoid and Tanh likewise"""

    name: ClassVar[str] = "fuse-gemm-activation"
    phase: ClassVar[Phase] = "inference"
    produces: ClassVar[tuple[str, ...]] = ("FusedGemm",)

    def match(self, op: Op, a: Any, b: Any, c: Any = None) -> Any:
        return op.node(("Relu", "Sigmoid", "Tanh"), op.Gemm(a, b, c, _label="gemm"), _label="activation")

    def replace(self, op: Builder, a: Any, b: Any, context: Context, c: Any = None) -> Any:
        given = {name: attribute.value for name, attribute in context.node("gemm").attributes.items()}
        kind = context.node("activation").op_type
        return op.FusedGemm(a, b, c, **given, activation=kind, _domain="com.microsoft")
