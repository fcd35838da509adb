"""The layouts of attention heads: [B,H,S,D] as computed, [B,S,H,D] and [B,S,H·D] as projected."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from fuseline.engine.patterns import Builder
from fuseline.passes.fusion.fragments.values import dims

__all__ = ["heads_after", "merged", "permutation", "unmerged"]

SWAP = (0, 2, 1, 3)


def permutation(value: ir.Value) -> tuple[int, ...] | None:
    """The permutation, if the value is a Transpose's output."""
    node = value.producer()
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    perm = node.attributes.get("perm")
    return tuple(perm.as_ints()) if perm is not None else None


def heads_after(op: Builder, value: ir.Value) -> Any:
    """[B,H,S,D] → [B,S,H,D], without a Transpose where undoing one does it."""
    node = value.producer()
    if node is not None and permutation(value) == SWAP:
        return node.inputs[0]
    made = op.Transpose(value, perm=SWAP)
    made.type = value.type
    shape = dims(value)
    if shape is not None and len(shape) == 4:
        made.shape = ir.Shape([shape[i] for i in SWAP])
    return made


def merged(op: Builder, value: ir.Value) -> Any:
    """[B,H,S,D] → [B,S,H·D], undoing what split the heads where possible."""
    parted = heads_after(op, value)
    shape = dims(value)
    assert shape is not None
    assert isinstance(shape[1], int)
    assert isinstance(shape[3], int)
    width = shape[1] * shape[3]
    node = parted.producer()
    if node is not None and node.op_type == "Reshape":
        source = node.inputs[0]
        before = dims(source)
        if before is not None and len(before) == 3 and before == (*(dims(parted) or ())[:2], width):
            return source
    made = op.Reshape(parted, [0, 0, width])
    made.type, made.shape = value.type, ir.Shape([shape[0], shape[2], width])
    return made


def unmerged(op: Builder, value: Any, like: ir.Value) -> Any:
    """[B,S,H·D] → [B,H,S,D], of the shape of `like`."""
    shape = dims(like)
    assert shape is not None
    parted = op.Reshape(value, [0, 0, shape[1], shape[3]])
    parted.type, parted.shape = like.type, ir.Shape([shape[i] for i in SWAP])
    return op.Transpose(parted, perm=SWAP)
