"""Attention that reads q, k and v from one tensor."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.nodes import attributes
from fuseline.engine.patterns import Builder, Context
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.native import native

__all__ = ["check_heads", "packed_attention"]


def check_heads(context: Context, whole: ir.Value) -> str | None:
    """Whether the nodes labelled q, k and v split [batch, length, width] into equal, known heads."""
    heads = [(dims_of(context.node(label).outputs[0]) or ())[2:] for label in "qkv"]
    if len(heads[0]) != 2 or not all(isinstance(d, int) for d in heads[0]):
        return f"number or size of heads is not known: {heads[0]}"
    if heads[1] != heads[0] or heads[2] != heads[0]:
        return f"the heads of q, k and v differ: {heads}"
    if len(dims_of(whole) or ()) != 3:
        return f"{whole.name!r} has the shape {dims_of(whole)}, not [batch, length, width]"
    return None


def packed_attention(op: Builder, context: Context, qkv: ir.Value, heads: int, size: int) -> ir.Value:
    """FusedAttentionPacked of [B,S,3·H·D], with mask, bias, dropout and attributes of the matched node."""
    parted = op.Reshape(qkv, [0, 0, 3, heads, size])
    node = context.node("attention")
    return native(op, "FusedAttentionPacked", parted, *node.inputs[3:], **attributes(node))
