"""Rotary position embedding."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import Dim, Dims, dims_of, equal
from fuseline.passes.fusion.fragments.heads import SWAP, heads_after, projection, unmerged
from fuseline.passes.fusion.fragments.native import native
from fuseline.passes.fusion.fragments.rotary import check_halves, rotate_half

__all__ = ["FuseRotary", "FuseRotaryTraining"]


class FuseRotary(Fusion):
    """x·cos+rotate_half(x)·sin → com.microsoft.RotaryEmbedding(x, positions, cos, sin)

    The tables of this call serve as the kernel's cache, so that any way of computing them is kept: with one
    row per position where all of a batch share them, otherwise with one row per batch and position.
    """

    name = "fuse-rotary"
    phase = "inference"
    produces = ("RotaryEmbedding",)

    def match(
        self,
        op: Op,
        x: Term,
        cos: Term,
        sin: Term,
        start: Term,
        stop: Term,
        axes: Term,
        steps: Term,
        start_2: Term,
        stop_2: Term,
    ) -> Term:
        halves = rotate_half(op, x, start, stop, axes, steps, start_2, stop_2)
        return op.Add(op.Mul(x, cos), op.Mul(halves, sin))

    def check(self, x: ir.Value, cos: ir.Value, sin: ir.Value, context: Context) -> str | None:
        known = dims_of(x)
        if known is None or len(known) != 4:
            return f"{x.name!r} has the shape {known}, not [batch, heads, length, size]"
        for table in (cos, sin):
            reason = self.check_table(table, x, context)
            if reason is not None:
                return reason
        return check_halves(context, x)

    def check_table(self, table: ir.Value, x: ir.Value, context: Context) -> str | None:
        """Whether a table of cosines or sines is what the kernel takes."""
        shape, known = dims_of(table), dims_of(x) or ()
        if not isinstance(known[1], int):
            return f"the number of heads of {x.name!r} is not known: {known}"
        if shape is None or len(shape) != 4 or shape[1] != 1 or shape[3] != known[3]:
            return f"{table.name!r} has the shape {shape}, not [batch or 1, 1, length, size]"
        if not _repeats(context, table):
            return f"the two halves of {table.name!r} are not known to be equal"
        return None

    def replace(self, op: Builder, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
        shared = (dims_of(cos) or ())[0] == 1 and (dims_of(sin) or ())[0] == 1
        tables = [_cache(op, table) for table in (cos, sin)]
        positions = op.constant(np.zeros(1, np.int64), "positions") if shared else _positions(op, cos)
        source = projection(x, swapped=True)
        heads = (dims_of(x) or ())[1]
        if source is None:
            return op.RotaryEmbedding(x, positions, *tables, _domain="com.microsoft")
        y = op.RotaryEmbedding(source, positions, *tables, num_heads=heads, _domain="com.microsoft")
        return unmerged(op, y, x)


class FuseRotaryTraining(FuseRotary, target="training"):
    """x·cos+rotate_half(x)·sin → fuseline.FusedRotary with the heads last, between two Transposes"""

    produces = ("FusedRotary",)

    def check_table(self, table: ir.Value, x: ir.Value, context: Context) -> str | None:
        if _without_heads(table) is None:
            return f"{table.name!r} has the shape {dims_of(table)}, not [batch or 1, 1, length, size]"
        return None

    def replace(self, op: Builder, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
        tables = [_flat(op, table) for table in (cos, sin)]
        y = native(op, "FusedRotary", heads_after(op, x), *tables)
        return op.Transpose(y, perm=SWAP)


_ELEMENTWISE = ("Unsqueeze", "Cast", "Mul", "Cos", "Sin", "Identity", "Reshape")


def _repeats(context: Context, table: ir.Value) -> bool:
    """Whether the table is made of two equal halves: elementwise functions of Concat(f, f)."""
    content = context.constant(table)
    if content is not None:
        first, second = np.split(content, 2, axis=-1)
        return bool(np.array_equal(first, second))
    node = table.producer()
    while node is not None and node.op_type in _ELEMENTWISE:
        if node.op_type == "Mul" and context.scalar(node.inputs[1]) is None:
            return False
        if node.op_type == "Reshape" and _last(node.inputs[0]) != _last(node.outputs[0]):
            return False
        node = node.inputs[0].producer() if node.inputs[0] is not None else None
    if node is None or node.op_type != "Concat" or len(node.inputs) != 2:
        return False
    return node.inputs[0] is node.inputs[1] and _is_last_axis(node)


def _last(value: ir.Value | None) -> Dim:
    shape = dims_of(value)
    return shape[-1] if shape else None


def _is_last_axis(node: ir.Node) -> bool:
    axis, shape = node.attributes["axis"].as_int(), dims_of(node.outputs[0])
    return axis == -1 or (shape is not None and axis == len(shape) - 1)


def _cache(op: Builder, table: ir.Value) -> ir.Value:
    """[B,1,S,D] → [B·S, D/2]"""
    width = (dims_of(table) or ())[3]
    assert isinstance(width, int)
    half = op.Slice(table, [0], [width // 2], [3])
    return op.Reshape(half, [-1, width // 2])


def _positions(op: Builder, table: ir.Value) -> ir.Value:
    """Row numbers [B,S] into the cache of a table [B,1,S,D]."""
    length = op.Shape(table, start=2, end=3)
    rows = op.Mul(op.Shape(table, start=0, end=1), length)
    count = op.Range(np.int64(0), op.Squeeze(rows), np.int64(1))
    return op.Reshape(count, op.Concat([-1], length, axis=0))


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
