"""2. A constant in a pattern: numbers match within a relative tolerance, whoever made them."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.patterns import Builder, Fusion, Op


class SquareByMultiplication(Fusion):
    """Pow(x, 2) → Mul(x, x)"""

    name: ClassVar[str] = "square-by-multiplication"
    produces: ClassVar[tuple[str, ...]] = ("Mul",)

    def match(self, op: Op, x: Any) -> Any:
        return op.Pow(x, 2.0)

    def replace(self, op: Builder, x: Any) -> Any:
        return op.Mul(x, x)
