"""Gelu by the error function."""

from __future__ import annotations

from math import sqrt
from typing import ClassVar

from fuseline.engine.patterns import Builder, Fusion, Op, Term
from fuseline.engine.patterns.terms import Capture

__all__ = ["FuseGelu"]


class FuseGelu(Fusion):
    """½·x·(1+Erf(x/√2)) → com.microsoft.Gelu(x)"""

    name: ClassVar[str] = "fuse-gelu"
    produces: ClassVar[tuple[str, ...]] = ("Gelu",)

    def match(self, op: Op, x: Capture) -> Term:
        inner = op.one_of(op.Div(x, sqrt(2)), op.Mul(x, sqrt(0.5)))
        factor = op.Add(op.Erf(inner), 1.0)
        return op.one_of(
            op.associative("Mul", x, factor, 0.5),
            op.Div(op.Mul(x, factor), 2.0),
            op.Mul(op.Div(x, 2.0), factor),
        )

    def replace(self, op: Builder, x: object) -> object:
        return op.Gelu(x, _domain="com.microsoft")
