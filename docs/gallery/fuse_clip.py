"""3. Operands that commute, and alternatives: both nestings of Min and Max are one pattern."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.patterns import Builder, Context, Fusion, Op


class FuseClip(Fusion):
    """Min(Max(x, low), high) or Max(Min(x, high), low) → Clip(x, low, high)"""

    name: ClassVar[str] = "fuse-clip"
    produces: ClassVar[tuple[str, ...]] = ("Clip",)

    def match(self, op: Op, x: Any, low: Any, high: Any) -> Any:
        return op.one_of(op.Min(op.Max(x, low), high), op.Max(op.Min(x, high), low))

    def check(self, low: Any, high: Any, context: Context) -> str | None:
        bounds = context.scalar(low), context.scalar(high)
        if None in bounds:
            return f"the bounds {low.name!r} and {high.name!r} are not both constant numbers"
        return None if bounds[0] <= bounds[1] else f"the bounds are {bounds[0]:g} and {bounds[1]:g}"  # type: ignore[operator]

    def replace(self, op: Builder, x: Any, low: Any, high: Any) -> Any:
        return op.Clip(x, low, high)
