"""A MatMul and the constant factor behind it."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op

__all__ = ["FuseMatmulScale"]


class FuseMatmulScale(Fusion):
    """MatMul(a, b)·α or /α → com.microsoft.FusedMatMul<alpha>(a, b)"""

    name: ClassVar[str] = "fuse-matmul-scale"
    phase: ClassVar[Phase] = "inference"
    produces: ClassVar[tuple[str, ...]] = ("FusedMatMul",)

    def match(self, op: Op, a: Any, b: Any, factor: Any, divisor: Any) -> Any:
        product = op.one_of(
            op.MatMul(a, b, _label="product"), op.FusedMatMul(a, b, _domain="com.microsoft", _label="product")
        )
        return op.one_of(op.Mul(product, factor), op.Div(product, divisor))

    def check(self, context: Context, factor: Any = None, divisor: Any = None) -> str | None:
        value = context.scalar(factor if factor is not None else divisor)
        return None if value else f"the factor is {value}, not a constant other than 0"

    def replace(
        self, op: Builder, a: Any, b: Any, context: Context, factor: Any = None, divisor: Any = None
    ) -> Any:
        node = context.node("product")
        given = {name: attribute.value for name, attribute in node.attributes.items()}
        scale = context.scalar(factor) if factor is not None else 1.0 / (context.scalar(divisor) or 1.0)
        given["alpha"] = given.get("alpha", 1.0) * (scale or 1.0)
        return op.FusedMatMul(a, b, **given, _domain="com.microsoft")
