"""Attention."""

from __future__ import annotations

import math

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import Dim, dims_of
from fuseline.passes.fusion.fragments.attention import (
    HEADS_LAST,
    check_attention,
    keys_transposed,
    masked,
    scaled,
    total_scale,
    weights,
)
from fuseline.passes.fusion.fragments.dropout import dropout_inputs
from fuseline.passes.fusion.fragments.heads import SWAP, heads_after, merged, projection
from fuseline.passes.fusion.fragments.masks import Scores, mask_inputs
from fuseline.passes.fusion.fragments.native import native, nothing
from fuseline.passes.fusion.fragments.repeat import unrepeated

__all__ = ["FuseAttention", "FuseAttentionTraining"]

_ABSORBING = -1e30  # added to a score, anything below leaves nothing of it


class FuseAttention(Fusion):
    """Softmax(q·kᵀ·scale+bias+mask)·v → com.microsoft.MultiHeadAttention(q, k, v, mask, bias)"""

    name = "fuse-attention"
    phase = "inference"
    produces = ("MultiHeadAttention",)

    def match(
        self,
        op: Op,
        q: Term,
        k: Term,
        v: Term,
        q_scale: Term,
        k_scale: Term,
        scale: Term,
        divisor: Term,
        q_divisor: Term,
        mask: Term,
        bias: Term,
        keep: Term,
        drop: Term,
        lowest: Term,
        visible: Term,
        ratio: Term,
        training: Term,
        to_flat: Term,
        from_flat: Term,
        shape: Term,
    ) -> Term:
        keys = scaled(op, keys_transposed(op, k, to_flat, from_flat), k_scale)
        scores = scaled(op, op.MatMul(scaled(op, q, q_scale, q_divisor), keys), scale, divisor)
        scores = masked(op, scores, mask, bias, keep, drop, lowest)
        y = op.MatMul(weights(op, scores, visible, ratio, training), v)
        swapped = op.Transpose(y, perm=SWAP)
        return op.one_of(op.Reshape(swapped, shape), swapped, y, pick="form")

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
        return check_attention(context, q, k, v, layout, form)

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


class FuseAttentionTraining(FuseAttention, target="training"):
    """Dropout(Softmax(q·kᵀ·scale+bias+mask))·v → fuseline.FusedAttention, grouped heads unrepeated

    The mask gets no gradient; what is added to the scores and depends on a parameter goes in as bias.
    """

    produces = ("FusedAttention",)

    def check(
        self, q: ir.Value, k: ir.Value, v: ir.Value, layout: int, form: int, context: Context
    ) -> str | None:
        captures = context.match.captures
        replaced = [captures[name] for name in ("keep", "drop") if captures.get(name) is not None]
        if replaced and captures.get("visible") is None:
            if not 2 <= len(dims_of(replaced[0]) or ()) <= 4:
                return f"the mask {replaced[0].name!r} has the shape {dims_of(replaced[0])}"
            bias = captures.get("bias")
            if bias is not None and _learns(context, bias):
                return f"{bias.name!r} is learned, but gets no gradient where its scores are replaced"
        groups = _groups(k, v, layout)
        if groups[0] != groups[1]:
            return f"keys and values have {groups[0]} and {groups[1]} heads"
        return check_attention(context, q, k, v, layout, form)

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
        mask: ir.Value | None = None,
        bias: ir.Value | None = None,
        keep: ir.Value | None = None,
        drop: ir.Value | None = None,
        lowest: ir.Value | None = None,
        ratio: ir.Value | None = None,
        training: ir.Value | None = None,
    ) -> ir.Value:
        query = heads_after(op, q)
        key = k if layout == HEADS_LAST else heads_after(op, unrepeated(k))
        value = heads_after(op, unrepeated(v))
        replaced = context.scalar(lowest) if visible is None else None
        if keep is not None or drop is not None:
            mask = op.Where(keep, 0.0, lowest) if keep is not None else op.Where(drop, lowest, 0.0)
        if visible is not None:
            # The kernel gives a row whose scores are all −∞ no weights and no gradient.
            mask = op.Where(visible, 0.0 if mask is None else mask, -math.inf)
        masks, biases = _sort(context, [x for x in (mask, bias) if x is not None])
        rate, seed, stream = dropout_inputs(op, context, ratio, training)
        y = native(
            op,
            "FusedAttention",
            query,
            key,
            value,
            _sum(op, masks),
            _sum(op, biases),
            rate,
            seed,
            scale=total_scale(context),
            stream=stream,
            lowest=_finite(replaced),
        )
        if form == 0:
            return op.Reshape(y, shape)
        return y if form == 1 else op.Transpose(y, perm=SWAP)


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


def _groups(k: ir.Value, v: ir.Value, layout: int) -> tuple[Dim, Dim]:
    """The number of heads of keys and values, before they are repeated."""
    key = dims_of(k if layout == HEADS_LAST else unrepeated(k)) or (None,) * 4
    value = dims_of(unrepeated(v)) or (None,) * 4
    return key[2 if layout == HEADS_LAST else 1], value[1]


def _finite(lowest: float | None) -> float:
    """The number that replaces scores; of a row whose scores are all −∞ the kernel needs no such hint."""
    return 0.0 if lowest is None or math.isinf(lowest) else lowest


def _sort(context: Context, added: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
    """What is added to the scores: without a gradient (masks), with one (biases)."""
    learned = [value for value in added if _learns(context, value)]
    return [value for value in added if value not in learned], learned


def _learns(context: Context, value: ir.Value) -> bool:
    """Whether a trainable parameter reaches the value."""
    seen: set[ir.Value] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        if context.model.parameters.is_trainable(current.name):
            return True
        node = current.producer()
        # Nothing flows back through a mask that is made of comparisons, shapes or integers.
        if node is None or current in seen or not _is_float(current):
            continue
        seen.add(current)
        stack.extend(v for v in node.inputs if v is not None)
    return False


def _is_float(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype.is_floating_point()


def _sum(op: Builder, values: list[ir.Value]) -> ir.Value:
    """Their sum with rank 4, or a tensor without elements, which stands for none."""
    if not values:
        return nothing(op)
    total = values[0]
    for value in values[1:]:
        total = op.Add(total, value)
    missing = 4 - max(len(dims_of(v) or ()) for v in values)
    return total if missing == 0 else op.Unsqueeze(total, list(range(missing)))
