"""The biases of the projections in front of attention."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.values import broadcasts_last

__all__ = ["FuseAttentionBias"]


class FuseAttentionBias(Fusion):
    """MultiHeadAttention(q+b₁, k+b₂, v+b₃) → com.microsoft.MultiHeadAttention(q, k, v, biases)"""

    name: ClassVar[str] = "fuse-attention-bias"
    phase: ClassVar[Phase] = "inference"
    counterpart: ClassVar[str | None] = "fuse-qkv-training"
    produces: ClassVar[tuple[str, ...]] = ("MultiHeadAttention",)

    def match(
        self,
        op: Op,
        q: Any,
        k: Any,
        v: Any,
        bq: Any,
        bk: Any,
        bv: Any,
        mask: Any = None,
        bias: Any = None,
    ) -> Any:
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

    def check(self, q: Any, k: Any, v: Any, context: Context, bq: Any, bv: Any, bk: Any = None) -> str | None:
        for x, added in ((q, bq), (k, bk), (v, bv)):
            if len(dims_of(x) or ()) != 3:
                return f"{x.name!r} has the shape {dims_of(x)}, not [batch, length, width]"
            if added is not None and (not broadcasts_last(added, x) or not context.is_constant(added)):
                return f"{added.name!r} is not a constant vector along the last axis"
        return None

    def replace(
        self,
        op: Builder,
        q: Any,
        k: Any,
        v: Any,
        context: Context,
        bq: Any,
        bv: Any,
        bk: Any = None,
        mask: Any = None,
        bias: Any = None,
    ) -> Any:
        width = (dims_of(bq) or (0,))[0]
        parts = [_content(bq), np.zeros(width, np.float32) if bk is None else _content(bk), _content(bv)]  # type: ignore[arg-type]
        biases = op.constant(np.concatenate(parts), "biases")
        node = context.node("attention")
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        return op.MultiHeadAttention(q, k, v, biases, mask, bias, **attributes, _domain="com.microsoft")


def _content(value: ir.Value) -> Any:
    assert value.const_value is not None
    return value.const_value.numpy()
