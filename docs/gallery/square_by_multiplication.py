"""2. A constant in a pattern: numbers match within a relative tolerance, whoever made them."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term


class SquareByMultiplication(Fusion):
    """Pow(x, 2) → Mul(x, x)"""

    name = "square-by-multiplication"
    produces = ("Mul",)

    def match(self, op: Op, x: Term) -> Term:
        return op.Pow(x, 2.0)

    def replace(self, op: Builder, x: ir.Value) -> ir.Value:
        return op.Mul(x, x)
