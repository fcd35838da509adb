"""Past keys and values in front of attention."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of

__all__ = ["FuseAttentionPast"]


class FuseAttentionPast(Fusion):
    """MultiHeadAttention(q, Concat(past, k), Concat(past, v)) → com.microsoft.MultiHeadAttention with past

    The joined keys and values become outputs of the operator: without them, the kernel ignores the past.
    """

    name = "fuse-attention-past"
    phase = "inference"
    produces = ("MultiHeadAttention",)

    def match(
        self, op: Op, q: Term, k: Term, v: Term, past_keys: Term, past_values: Term, bias: Term | None = None
    ) -> tuple[Term, ...]:
        keys = op.Concat(past_keys, k, _label="keys")
        values = op.Concat(past_values, v, _label="values")
        attention = op.MultiHeadAttention(
            q, keys, values, None, None, bias, _domain="com.microsoft", _label="attention"
        )
        return attention, keys, values

    def check(
        self, past_keys: ir.Value, past_values: ir.Value, k: ir.Value, v: ir.Value, context: Context
    ) -> str | None:
        for label in ("keys", "values"):
            if context.node(label).attributes["axis"].value not in (2, -2):
                return f"the {label} are not joined along their length"
        for value in (past_keys, past_values, k, v):
            if len(dims_of(value) or ()) != 4:
                return f"{value.name!r} has the shape {dims_of(value)}, not [batch, heads, length, size]"
        return None

    def replace(
        self,
        op: Builder,
        q: ir.Value,
        k: ir.Value,
        v: ir.Value,
        past_keys: ir.Value,
        past_values: ir.Value,
        context: Context,
        bias: ir.Value | None = None,
    ) -> tuple[ir.Value, ...]:
        inputs = [q, k, v, None, None, bias, past_keys, past_values]
        return op.copy(context.node("attention"), inputs, outputs=3)
