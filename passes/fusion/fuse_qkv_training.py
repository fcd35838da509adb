"""The three projections in front of attention, as one."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.linear import check_bias, check_packable, linear
from fuseline.passes.fusion.fragments.packed import check_heads, packed_attention

__all__ = ["FuseQkvTraining"]


class FuseQkvTraining(Fusion):
    """FusedAttention of three projections of x → one MatMul and fuseline.FusedAttentionPacked

    Weights and biases are packed in the parameter map, so that they are saved under their own names.
    """

    name = "fuse-qkv-training"
    phase = "pre-gradient"
    produces = ("FusedAttentionPacked",)

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
        shape_q: Term,
        shape_k: Term,
        shape_v: Term,
        mask: Term,
        bias: Term,
        ratio: Term,
        seed: Term,
    ) -> Term:
        q = op.Reshape(linear(op, x, wq, bq, transposed=True), shape_q, _label="q")
        k = op.Reshape(linear(op, x, wk, bk, transposed=True), shape_k, _label="k")
        v = op.Reshape(linear(op, x, wv, bv, transposed=True), shape_v, _label="v")
        return op.FusedAttention(q, k, v, mask, bias, ratio, seed, _domain="fuseline", _label="attention")

    def check(
        self,
        x: ir.Value,
        wq: ir.Value,
        wk: ir.Value,
        wv: ir.Value,
        context: Context,
        bq: ir.Value | None = None,
        bk: ir.Value | None = None,
        bv: ir.Value | None = None,
    ) -> str | None:
        return (
            check_heads(context, x)
            or check_packable(context, [wq, wk, wv])
            or check_packable(context, [bq, bk, bv])
            or check_bias(bq, wq, transposed=True)
        )

    def replace(
        self,
        op: Builder,
        x: ir.Value,
        wq: ir.Value,
        wk: ir.Value,
        wv: ir.Value,
        context: Context,
        bq: ir.Value | None = None,
        bk: ir.Value | None = None,
        bv: ir.Value | None = None,
    ) -> ir.Value:
        weight = context.model.pack_parameters([wq, wk, wv], 0, f"{wq.name}.qkv")
        heads, size = (dims_of(context.node("q").outputs[0]) or ())[2:]
        assert isinstance(heads, int)
        assert isinstance(size, int)
        product = op.MatMul(x, op.Transpose(weight, perm=(1, 0)))
        if bq is not None and bk is not None and bv is not None:
            packed = context.model.pack_parameters([bq, bk, bv], 0, f"{bq.name}.qkv")
            product = op.Add(product, packed)
        return packed_attention(op, context, product, heads, size)
