"""The pass `fake-quantize`."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from fuseline.engine.patterns import Context, Fusion, Op
from fuseline.engine.rewriting.builder import Builder

__all__ = ["FakeQuantize"]


class FakeQuantize(Fusion):
    """Clip(Round(x/s), least, most)·s → com.microsoft.FakeQuant(x/s)·s, which has a gradient of use

    Rounding has no gradient of use; FakeQuant passes the gradient through where nothing is clipped. With the
    division and the product around it, learned scales get theirs as well, per tensor or per channel.
    """

    name = "fake-quantize"
    phase = "pre-gradient"
    produces = ("FakeQuant",)

    def match(self, op: Op, x: Any, s: Any, least: Any, most: Any) -> Any:
        return op.Mul(op.Clip(op.Round(op.Div(x, s)), least, most), s)

    def check(self, x: ir.Value, least: ir.Value, most: ir.Value, context: Context) -> str | None:
        limits = [context.scalar(v) for v in (least, most)]
        if any(v is None or v != round(v) for v in limits):
            return f"the limits {limits} are not two whole numbers"
        if x.dtype is not ir.DataType.FLOAT:
            return f"{x.name!r} is {x.dtype}, not FLOAT"
        return None

    def replace(
        self, op: Builder, x: ir.Value, s: ir.Value, least: ir.Value, most: ir.Value, context: Context
    ) -> ir.Value:
        low, high = (int(context.scalar(v) or 0) for v in (least, most))
        made, _ = op.FakeQuant(
            op.Div(x, s), 1.0, 0.0, quant_min=low, quant_max=high, _domain="com.microsoft", _outputs=2
        )
        return op.Mul(made, s)
