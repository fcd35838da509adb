"""Attention, onto ONNX Runtime's kernel."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.attention import HEADS_LAST, AttentionFusion, total_scale
from fuseline.passes.fusion.fragments.heads import SWAP, merged, projection
from fuseline.passes.fusion.fragments.masks import Scores, mask_inputs

__all__ = ["FuseAttention"]

_ABSORBING = -1e30  # added to a score, anything below leaves nothing of it


class FuseAttention(AttentionFusion):
    """Softmax(q·kᵀ·scale+bias+mask)·v → com.microsoft.MultiHeadAttention(q, k, v, mask, bias)"""

    name = "fuse-attention"
    phase = "inference"
    counterpart = "fuse-attention-training"
    produces = ("MultiHeadAttention",)

    def check(
        self, q: ir.Value, k: ir.Value, v: ir.Value, layout: int, form: int, context: Context
    ) -> str | None:
        captures = context.match.captures
        if captures.get("ratio") is not None and context.scalar(captures.get("training")):
            return "dropout is switched on"
        for name in ("keep", "drop"):
            shape = dims_of(captures.get(name)) if captures.get(name) is not None else (1,)
            if shape is None or len(shape) > 4 or (len(shape) > 2 and shape[-3] != 1):
                return f"the mask {captures[name].name!r} has the shape {shape}, not one for all heads"
        shape_of_q = dims_of(q) or ()
        heads = shape_of_q[1] if len(shape_of_q) == 4 else None
        for value, axis in ((k, 2 if layout == HEADS_LAST else 1), (v, 1)):
            shape = dims_of(value) or ()
            if len(shape) == 4 and shape[axis] not in (1, heads):
                return f"{value.name!r} has the shape {shape}, but there are {heads} heads"
        lowest = context.scalar(captures.get("lowest"))
        if lowest is not None and _ABSORBING < lowest <= -1e4:
            return f"{lowest} in place of scores makes rows without any key alike, added to them it does not"
        return super().check(q, k, v, layout, form, context)

    def replace(
        self,
        op: Builder,
        q: ir.Value,
        k: ir.Value,
        v: ir.Value,
        layout: int,
        form: int,
        context: Context,
        visible: ir.Value | None = None,
        shape: ir.Value | None = None,
    ) -> ir.Value:
        batch, heads, queries, _ = dims_of(q) or ()
        assert isinstance(heads, int)
        keys = (dims_of(v) or ())[2]
        masks = mask_inputs(op, context, Scores(batch, heads, queries, keys, (q, v)))
        key, value = _keys_and_values(op, k, v, layout, heads)
        y = op.MultiHeadAttention(
            merged(op, q),
            key,
            value,
            None,
            masks.mask,
            masks.bias,
            num_heads=heads,
            scale=total_scale(context),
            mask_filter_value=masks.filter_value,
            _domain="com.microsoft",
        )
        width = (dims_of(v) or ())[3]
        assert isinstance(width, int)
        if context.has("guard"):
            y = op.Where(op.IsNaN(y), 0.0, y)
        if visible is not None:
            y = op.Where(op.Squeeze(visible, [1]), y, 0.0)
        if form == 0 and len(dims_of(context.match.root.outputs[0]) or ()) == 3:
            return y
        if form == 0:
            return op.Reshape(y, shape)
        parted = op.Reshape(y, [0, 0, heads, width])
        return parted if form == 1 else op.Transpose(parted, perm=SWAP)


def _keys_and_values(
    op: Builder, k: ir.Value, v: ir.Value, layout: int, heads: int
) -> tuple[ir.Value, ir.Value]:
    """Both as projected, [B,T,H·D], or both as [B,H,T,D]: the kernel takes them alike or not at all."""
    key = projection(k, swapped=layout != HEADS_LAST)
    value = projection(v, swapped=True)
    key_heads, value_heads = (dims_of(k) or ())[2 if layout == HEADS_LAST else 1], (dims_of(v) or ())[1]
    if key is not None and value is not None and key_heads == value_heads == heads:
        return key, value
    four = op.Transpose(k, perm=SWAP) if layout == HEADS_LAST else k
    return _repeated(op, four, key_heads, heads), _repeated(op, v, value_heads, heads)


def _repeated(op: Builder, value: ir.Value, found: int | str | None, heads: int) -> ir.Value:
    """One head that all queries share, for each of them."""
    return value if found == heads else op.Expand(value, [1, heads, 1, 1])
