"""Rotary position embedding with its own backward."""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op
from fuseline.passes.fusion.fragments.heads import heads_after
from fuseline.passes.fusion.fragments.native import native
from fuseline.passes.fusion.fragments.rotary import check_halves, rotary
from fuseline.passes.fusion.fragments.values import dims

__all__ = ["FuseRotaryTraining"]


class FuseRotaryTraining(Fusion):
    """x·cos+rotate_half(x)·sin → fuseline.FusedRotary with the heads last, between two Transposes"""

    name: ClassVar[str] = "fuse-rotary-training"
    phase: ClassVar[Phase] = "pre-gradient"
    produces: ClassVar[tuple[str, ...]] = ("FusedRotary",)

    def match(
        self,
        op: Op,
        x: Any,
        cos: Any,
        sin: Any,
        start: Any,
        stop: Any,
        axes: Any,
        steps: Any,
        start_2: Any,
        stop_2: Any,
    ) -> Any:
        return rotary(op, x, cos, sin, start, stop, axes, steps, start_2, stop_2)

    def check(self, x: Any, cos: Any, sin: Any, context: Context) -> str | None:
        known = dims(x)
        if known is None or len(known) != 4:
            return f"{x.name!r} has the shape {known}, not [batch, heads, length, size]"
        for table in (cos, sin):
            if _without_heads(table) is None:
                return f"{table.name!r} has the shape {dims(table)}, not [batch or 1, 1, length, size]"
        return check_halves(context, x)

    def replace(self, op: Builder, x: Any, cos: Any, sin: Any) -> Any:
        tables = [_flat(op, table) for table in (cos, sin)]
        y = native(op, "FusedRotary", heads_after(op, x), *tables)
        return op.Transpose(y, perm=(0, 2, 1, 3))


def _without_heads(table: ir.Value) -> tuple[Any, ...] | None:
    shape = dims(table)
    return (shape[0], *shape[2:]) if shape is not None and len(shape) == 4 and shape[1] == 1 else None


def _flat(op: Builder, table: ir.Value) -> Any:
    """[B,1,S,D] → [B,S,D], undoing the Unsqueeze where there is one."""
    node, wanted = table.producer(), _without_heads(table)
    if node is not None and node.op_type == "Unsqueeze" and dims(node.inputs[0]) == wanted:
        return node.inputs[0]
    made = op.Squeeze(table, [1])
    made.type, made.shape = table.type, ir.Shape(list(wanted or ()))
    return made
