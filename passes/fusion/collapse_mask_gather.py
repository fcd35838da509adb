"""The index arithmetic by which torch's masking functions read a padding mask."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of

__all__ = ["CollapseMaskGather"]


class CollapseMaskGather(Fusion):
    """GatherND(mask, every pair of row and column) → Unsqueeze(mask)"""

    name = "collapse-mask-gather"
    produces = ("Unsqueeze",)

    def match(
        self, op: Op, mask: Term, rows: Term, columns: Term, to_rows: Term, to_columns: Term, axes: Term
    ) -> Term:
        row = op.Unsqueeze(op.one_of(op.Expand(rows, to_rows), rows), axes)
        column = op.Unsqueeze(op.one_of(op.Expand(columns, to_columns), columns), axes)
        return op.GatherND(mask, op.Concat(row, column, axis=-1, _shared=True), batch_dims=0)

    def check(self, mask: ir.Value, rows: ir.Value, columns: ir.Value, context: Context) -> str | None:
        known, made = dims_of(mask), dims_of(context.match.root.outputs[0])
        if known is None or len(known) != 2 or made is None or len(made) != 4 or None in known:
            return f"the mask {known} is not gathered into [batch, 1, 1, length], but into {made}"
        if made != (known[0], 1, 1, known[1]):
            return f"not the whole mask {known} is gathered, or it is not known: {made}"
        for name, value, axis in (("rows", rows, 0), ("columns", columns, 3)):
            if not _counts(context, value, axis):
                return f"the {name} are not known to count from 0"
        return None

    def replace(self, op: Builder, mask: ir.Value) -> ir.Value:
        return op.Unsqueeze(mask, [1, 2])


def _counts(context: Context, value: ir.Value, axis: int) -> bool:
    """Whether the value is Range(0, n), laid out along one axis of four."""
    shape = dims_of(value)
    if shape is None or len(shape) != 4 or any(d != 1 for i, d in enumerate(shape) if i != axis):
        return False
    node = value.producer()
    while node is not None and node.op_type in ("Reshape", "Unsqueeze", "Cast", "Identity"):
        node = node.inputs[0].producer() if node.inputs[0] is not None else None
    if node is None or node.op_type != "Range":
        return False
    return context.scalar(node.inputs[0]) == 0 and context.scalar(node.inputs[2]) == 1
