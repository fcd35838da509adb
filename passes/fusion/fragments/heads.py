"""The layouts of attention heads: [B,H,S,D] as computed, [B,S,H,D] and [B,S,H·D] as projected."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder
from fuseline.engine.shapes.dims import dims_of

__all__ = ["SWAP", "heads_after", "merged", "permutation", "projection", "unmerged"]

SWAP = (0, 2, 1, 3)


def permutation(value: ir.Value) -> tuple[int, ...] | None:
    """The permutation, if the value is a Transpose's output."""
    node = value.producer()
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    perm = node.attributes.get("perm")
    return tuple(perm.as_ints()) if perm is not None else None


def heads_after(op: Builder, value: ir.Value) -> ir.Value:
    """[B,H,S,D] → [B,S,H,D], without a Transpose where undoing one does it."""
    node = value.producer()
    if node is not None and permutation(value) == SWAP and node.inputs[0] is not None:
        return node.inputs[0]
    return op.Transpose(value, perm=SWAP)


def projection(value: ir.Value, *, swapped: bool) -> ir.Value | None:
    """The [B,S,H·D] that was split into heads to make [B,H,S,D] (swapped) or [B,S,H,D]; None if none was."""
    node = value.producer()
    if swapped:
        if node is None or permutation(value) != SWAP or node.inputs[0] is None:
            return None
        value, node = node.inputs[0], node.inputs[0].producer()
    if node is None or node.op_type != "Reshape" or node.inputs[0] is None:
        return None
    before, after = dims_of(node.inputs[0]), dims_of(value)
    if before is None or after is None or len(before) != 3 or len(after) != 4:
        return None
    if not isinstance(after[2], int) or not isinstance(after[3], int):
        return None
    return node.inputs[0] if before == (*after[:2], after[2] * after[3]) else None


def merged(op: Builder, value: ir.Value) -> ir.Value:
    """[B,H,S,D] → [B,S,H·D], undoing what split the heads where possible."""
    source = projection(value, swapped=True)
    if source is not None:
        return source
    shape = dims_of(value)
    assert shape is not None
    assert isinstance(shape[1], int)
    assert isinstance(shape[3], int)
    return op.Reshape(heads_after(op, value), [0, 0, shape[1] * shape[3]])


def unmerged(op: Builder, value: ir.Value, like: ir.Value) -> ir.Value:
    """[B,S,H·D] → [B,H,S,D], of the shape of `like`."""
    shape = dims_of(like)
    assert shape is not None
    assert isinstance(shape[1], int)
    assert isinstance(shape[3], int)
    return op.Transpose(op.Reshape(value, [0, 0, shape[1], shape[3]]), perm=SWAP)
