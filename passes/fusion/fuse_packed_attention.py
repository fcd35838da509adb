"""Attention with the projections in front of it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.nodes import attributes
from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of, equal
from fuseline.passes.fusion.fragments.linear import check_bias, linear
from fuseline.passes.fusion.fragments.values import Array, content

__all__ = ["FusePackedAttention"]


class FusePackedAttention(Fusion):
    """MultiHeadAttention of three projections of x → com.microsoft.Attention(x, weights, biases)

    Also of the three parts of one projection.
    """

    name = "fuse-packed-attention"
    phase = "inference"
    counterpart = "fuse-qkv-training"
    produces = ("Attention",)

    def match(
        self,
        op: Op,
        x: Term,
        wq: Term,
        wk: Term,
        wv: Term,
        bq: Term,
        bk: Term,
        bv: Term,
        sizes: Term,
        mask: Term | None = None,
        bias: Term | None = None,
    ) -> Term:
        three = [linear(op, x, w, b, transposed=False) for w, b in ((wq, bq), (wk, bk), (wv, bv))]
        whole = linear(op, x, wq, bq, transposed=False)
        parts = op.Split(whole, axis=-1, _outputs=3)
        sized = op.Split(whole, sizes, axis=-1, _outputs=3)
        return op.one_of(
            *(
                op.MultiHeadAttention(*heads, None, mask, bias, _domain="com.microsoft", _label="attention")
                for heads in (three, parts, sized)
            ),
            pick="form",
        )

    def check(self, x: ir.Value, form: int, context: Context) -> str | None:
        captures = context.match.captures
        names = ("q", "k", "v") if form == 0 else ("q",)
        weights = [captures[f"w{n}"] for n in names]
        biases = [captures.get(f"b{n}") for n in names]
        for value in (*weights, *(b for b in biases if b is not None)):
            if not context.is_constant(value) or value.const_value is None:
                return f"{value.name!r} is not a constant weight"
        if any(len(dims_of(w) or ()) != 2 or not equal(dims_of(w), dims_of(weights[0])) for w in weights):
            return f"the weights differ in shape: {[dims_of(w) for w in weights]}"
        for weight, added in zip(weights, biases, strict=True):
            if reason := check_bias(added, weight, transposed=False):
                return reason
        if len(dims_of(x) or ()) != 3:
            return f"{x.name!r} has the shape {dims_of(x)}, not [batch, length, width]"
        if captures.get("sizes") is not None:
            sizes = context.constant(captures["sizes"])
            if sizes is None or len(np.unique(sizes)) != 1:
                return "the parts of the projection differ in size"
        return None

    def replace(
        self,
        op: Builder,
        x: ir.Value,
        form: int,
        context: Context,
        mask: ir.Value | None = None,
        bias: ir.Value | None = None,
    ) -> ir.Value:
        captures = context.match.captures
        names = ("q", "k", "v") if form == 0 else ("q",)
        weights = [content(captures[f"w{n}"]) for n in names]
        biases = [_bias(captures.get(f"b{n}"), w) for n, w in zip(names, weights, strict=True)]
        whole = op.constant(np.concatenate(weights, axis=1), "weights")
        added = op.constant(np.concatenate(biases), "biases")
        given = attributes(context.node("attention"))
        fused: ir.Value = op.Attention(x, whole, added, mask, None, bias, **given, _domain="com.microsoft")
        return fused


def _bias(value: ir.Value | None, weight: Array) -> Array:
    return np.zeros_like(weight[0]) if value is None else content(value)
