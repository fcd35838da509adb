"""Attention that reads q, k and v from one tensor."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context
from fuseline.passes.fusion.fragments.native import native
from fuseline.passes.fusion.fragments.values import dims

__all__ = ["packed_attention"]


def packed_attention(op: Builder, context: Context, qkv: Any, heads: int, size: int) -> Any:
    """FusedAttentionPacked of [B,S,3·H·D], with mask, bias, dropout and attributes of the matched node."""
    batch, length, _ = dims(qkv) or ()
    parted = op.Reshape(qkv, [0, 0, 3, heads, size])
    parted.type, parted.shape = qkv.type, ir.Shape([batch, length, 3, heads, size])
    node = context.node("attention")
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    y = native(op, "FusedAttentionPacked", parted, *node.inputs[3:], **attributes)
    y.shape = node.outputs[0].shape
    return y
