"""Attention with its own backward."""

from __future__ import annotations

import math

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.attention import HEADS_LAST, AttentionFusion, total_scale
from fuseline.passes.fusion.fragments.dropout import dropout_inputs
from fuseline.passes.fusion.fragments.heads import heads_after
from fuseline.passes.fusion.fragments.native import native, nothing
from fuseline.passes.fusion.fragments.repeat import unrepeated

__all__ = ["FuseAttentionTraining"]


class FuseAttentionTraining(AttentionFusion):
    """Dropout(Softmax(q·kᵀ·scale+bias+mask))·v → fuseline.FusedAttention, grouped heads unrepeated

    The mask gets no gradient; what is added to the scores and depends on a parameter goes in as bias.
    """

    name = "fuse-attention-training"
    phase = "pre-gradient"
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
        mask: ir.Value | None = None,
        bias: ir.Value | None = None,
        keep: ir.Value | None = None,
        drop: ir.Value | None = None,
        lowest: ir.Value | None = None,
        visible: ir.Value | None = None,
        ratio: ir.Value | None = None,
        training: ir.Value | None = None,
        shape: ir.Value | None = None,
    ) -> ir.Value:
        query = heads_after(op, q)
        key = k if layout == HEADS_LAST else heads_after(op, unrepeated(k))
        value = heads_after(op, unrepeated(v))
        if (keep is not None or drop is not None) and visible is None:
            query = _gated(op, query, keep, drop)
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
        )
        if form == 0:
            return op.Reshape(y, shape)
        return y if form == 1 else op.Transpose(y, perm=(0, 2, 1, 3))


def _gated(op: Builder, query: ir.Value, keep: ir.Value | None, drop: ir.Value | None) -> ir.Value:
    """The query [B,S,H,D] with rows of zeros where all scores are replaced.

    The kernel adds its mask, and an added number lets the gradient pass. Of a row that sees nothing a zero
    query leaves the weights as they are, and gives neither itself nor a key any gradient.
    """
    chosen = keep if keep is not None else op.Not(drop)
    rank = len(dims_of(chosen) or ())
    chosen = op.Cast(chosen, to=ir.DataType.FLOAT.value)
    chosen = op.Unsqueeze(chosen, list(range(4 - rank))) if rank < 4 else chosen
    seen = op.Transpose(op.ReduceMax(chosen, [3], keepdims=1), perm=(0, 2, 1, 3))
    return op.Mul(query, seen)


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
