"""The biases of the projections in front of attention."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.values import broadcasts_last, content

__all__ = ["FuseAttentionBias"]


class FuseAttentionBias(Fusion):
    """MultiHeadAttention(q+b₁, k+b₂, v+b₃) → com.microsoft.MultiHeadAttention(q, k, v, biases)"""

    name = "fuse-attention-bias"
    phase = "inference"
    counterpart = "fuse-qkv-training"
    produces = ("MultiHeadAttention",)

    def match(
        self,
        op: Op,
        q: Term,
        k: Term,
        v: Term,
        bq: Term,
        bk: Term,
        bv: Term,
        mask: Term | None = None,
        bias: Term | None = None,
    ) -> Term:
        keys = op.one_of(op.Add(k, bk), k)
        return op.MultiHeadAttention(
            op.Add(q, bq),
            keys,
            op.Add(v, bv),
            None,
            mask,
            bias,
            _domain="com.microsoft",
            _label="attention",
        )

    def check(
        self,
        q: ir.Value,
        k: ir.Value,
        v: ir.Value,
        context: Context,
        bq: ir.Value,
        bv: ir.Value,
        bk: ir.Value | None = None,
    ) -> str | None:
        for x, added in ((q, bq), (k, bk), (v, bv)):
            if len(dims_of(x) or ()) != 3:
                return f"{x.name!r} has the shape {dims_of(x)}, not [batch, length, width]"
            if added is not None and (not broadcasts_last(added, x) or not context.is_constant(added)):
                return f"{added.name!r} is not a constant vector along the last axis"
        return None

    def replace(
        self,
        op: Builder,
        q: ir.Value,
        k: ir.Value,
        v: ir.Value,
        context: Context,
        bq: ir.Value,
        bv: ir.Value,
        bk: ir.Value | None = None,
        mask: ir.Value | None = None,
        bias: ir.Value | None = None,
    ) -> ir.Value:
        queries, values = content(bq), content(bv)
        keys = np.zeros_like(queries) if bk is None else content(bk)
        biases = op.constant(np.concatenate([queries, keys, values]), "biases")
        return op.copy(context.node("attention"), [q, k, v, biases, mask, bias])[0]
