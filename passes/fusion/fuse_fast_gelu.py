"""Gelu by its tanh approximation."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term
from fuseline.passes.fusion.fragments.gelu import tanh_gelu

__all__ = ["FuseFastGelu"]


class FuseFastGelu(Fusion):
    """½·x·(1+Tanh(√(2/π)·(x+0.044715·x³))) → com.microsoft.FastGelu(x)"""

    name = "fuse-fast-gelu"
    produces = ("FastGelu",)

    def match(self, op: Op, x: Term) -> Term:
        return op.one_of(tanh_gelu(op, x), op.Gelu(x, approximate="tanh"))

    def replace(self, op: Builder, x: ir.Value) -> ir.Value:
        return op.FastGelu(x, _domain="com.microsoft")
