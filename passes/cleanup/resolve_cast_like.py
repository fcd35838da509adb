"""The pass `resolve-cast-like`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["ResolveCastLike"]


class ResolveCastLike(LocalRewrite):
    """CastLike(x, y) → Cast(x) to y's type, or Identity(x) where that is x's own"""

    name = "resolve-cast-like"
    operators = ("CastLike",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        like = node.inputs[1]
        return True if like is not None and like.dtype is not None else "the target's type is not known"

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        x, like = node.inputs
        assert x is not None
        assert like is not None
        assert like.dtype is not None
        if x.dtype == like.dtype:
            return op.Identity(x)
        return op.Cast(x, to=int(like.dtype))
