"""The three projections in front of attention, as one."""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.linear import check_packable, linear
from fuseline.passes.fusion.fragments.packed import check_heads, packed_attention

__all__ = ["FuseQkvTraining"]


class FuseQkvTraining(Fusion):
    """FusedAttention of three projections of x → one MatMul and fuseline.FusedAttentionPacked

    Weights and biases are packed in the parameter map, so that they are saved under their own names.
    """

    name: ClassVar[str] = "fuse-qkv-training"
    phase: ClassVar[Phase] = "pre-gradient"
    produces: ClassVar[tuple[str, ...]] = ("FusedAttentionPacked",)

    def match(
        self,
        op: Op,
        x: Any,
        wq: Any,
        wk: Any,
        wv: Any,
        bq: Any,
        bk: Any,
        bv: Any,
        shape_q: Any,
        shape_k: Any,
        shape_v: Any,
        mask: Any,
        bias: Any,
        ratio: Any,
        seed: Any,
    ) -> Any:
        q = op.Reshape(linear(op, x, wq, bq, transposed=True), shape_q, _label="q")
        k = op.Reshape(linear(op, x, wk, bk, transposed=True), shape_k, _label="k")
        v = op.Reshape(linear(op, x, wv, bv, transposed=True), shape_v, _label="v")
        return op.FusedAttention(q, k, v, mask, bias, ratio, seed, _domain="fuseline", _label="attention")

    def check(
        self,
        x: Any,
        wq: Any,
        wk: Any,
        wv: Any,
        context: Context,
        bq: Any = None,
        bk: Any = None,
        bv: Any = None,
    ) -> str | None:
        return (
            check_heads(context, x)
            or check_packable(context, [wq, wk, wv])
            or check_packable(context, [bq, bk, bv])
        )

    def replace(
        self,
        op: Builder,
        x: Any,
        wq: Any,
        wk: Any,
        wv: Any,
        context: Context,
        bq: Any = None,
        bk: Any = None,
        bv: Any = None,
    ) -> Any:
        weight = context.model.pack_parameters([wq, wk, wv], 0, f"{wq.name}.qkv")
        batch, length, _ = dims_of(x) or ()
        heads, size = (dims_of(context.node("q").outputs[0]) or ())[2:]
        assert isinstance(heads, int)
        assert isinstance(size, int)
        columns = op.Transpose(weight, perm=(1, 0))
        columns.type, columns.shape = weight.type, ir.Shape([(dims_of(wq) or ())[1], 3 * heads * size])
        product = op.MatMul(x, columns)
        product.type, product.shape = x.type, ir.Shape([batch, length, 3 * heads * size])
        if bq is not None:
            packed = context.model.pack_parameters([bq, bk, bv], 0, f"{bq.name}.qkv")
            product = op.Add(product, packed)
        return packed_attention(op, context, product, heads, size)
