"""x·sigmoid(α·x): QuickGelu, and SiLU with α = 1."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term

__all__ = ["FuseQuickGelu"]


class FuseQuickGelu(Fusion):
    """x·Sigmoid(α·x) → com.microsoft.QuickGelu<alpha=α>(x), SiLU with α = 1 included"""

    name = "fuse-quick-gelu"
    produces = ("QuickGelu",)

    def match(self, op: Op, x: Term, alpha: Term) -> Term:
        return op.Mul(x, op.Sigmoid(op.one_of(op.Mul(x, alpha), x)))

    def check(self, x: ir.Value, context: Context, alpha: ir.Value | None = None) -> str | None:
        if alpha is not None and context.scalar(alpha) is None:
            return f"the factor {alpha.name!r} inside the sigmoid is not a constant"
        return None

    def replace(self, op: Builder, x: ir.Value, context: Context, alpha: ir.Value | None = None) -> ir.Value:
        factor = 1.0 if alpha is None else context.scalar(alpha)
        return op.QuickGelu(x, _domain="com.microsoft", alpha=factor)
