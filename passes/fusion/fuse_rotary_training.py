"""Rotary position embedding with its own backward."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context
from fuseline.engine.shapes.dims import Dims, dims_of, equal
from fuseline.passes.fusion.fragments.heads import heads_after
from fuseline.passes.fusion.fragments.native import native
from fuseline.passes.fusion.fragments.rotary import RotaryFusion

__all__ = ["FuseRotaryTraining"]


class FuseRotaryTraining(RotaryFusion):
    """x·cos+rotate_half(x)·sin → fuseline.FusedRotary with the heads last, between two Transposes"""

    name = "fuse-rotary-training"
    phase = "pre-gradient"
    produces = ("FusedRotary",)

    def check_table(self, table: ir.Value, x: ir.Value, context: Context) -> str | None:
        if _without_heads(table) is None:
            return f"{table.name!r} has the shape {dims_of(table)}, not [batch or 1, 1, length, size]"
        return None

    def replace(self, op: Builder, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
        tables = [_flat(op, table) for table in (cos, sin)]
        y = native(op, "FusedRotary", heads_after(op, x), *tables)
        return op.Transpose(y, perm=(0, 2, 1, 3))


def _without_heads(table: ir.Value) -> Dims | None:
    shape = dims_of(table)
    return (shape[0], *shape[2:]) if shape is not None and len(shape) == 4 and shape[1] == 1 else None


def _flat(op: Builder, table: ir.Value) -> ir.Value:
    """[B,1,S,D] → [B,S,D], undoing the Unsqueeze where there is one."""
    node, wanted = table.producer(), _without_heads(table)
    source = node.inputs[0] if node is not None and node.op_type == "Unsqueeze" else None
    if source is not None and equal(dims_of(source), wanted):
        return source
    return op.Squeeze(table, [1])
