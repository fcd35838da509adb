"""3. Operands that commute, and alternatives: both nestings of Min and Max are one pattern."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term


class FuseClip(Fusion):
    """Min(Max(x, low), high) or Max(Min(x, high), low) → Clip(x, low, high)"""

    name = "fuse-clip"
    produces = ("Clip",)

    def match(self, op: Op, x: Term, low: Term, high: Term) -> Term:
        return op.one_of(op.Min(op.Max(x, low), high), op.Max(op.Min(x, high), low))

    def check(self, low: ir.Value, high: ir.Value, context: Context) -> str | None:
        bounds = context.scalar(low), context.scalar(high)
        if None in bounds:
            return f"the bounds {low.name!r} and {high.name!r} are not both constant numbers"
        return None if bounds[0] <= bounds[1] else f"the bounds are {bounds[0]:g} and {bounds[1]:g}"  # type: ignore[operator]

    def replace(self, op: Builder, x: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
        return op.Clip(x, low, high)
