"""Gelu by the error function."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term
from fuseline.passes.fusion.fragments.gelu import erf_gelu

__all__ = ["FuseGelu"]


class FuseGelu(Fusion):
    """½·x·(1+Erf(x/√2)) → com.microsoft.Gelu(x)

    ONNX's own Gelu (opset 20) becomes the same node, whose kernel ONNX Runtime has had for longer.
    """

    name = "fuse-gelu"
    produces = ("Gelu",)

    def match(self, op: Op, x: Term) -> Term:
        return op.one_of(erf_gelu(op, x), op.Gelu(x, approximate="none"))

    def replace(self, op: Builder, x: ir.Value) -> ir.Value:
        return op.Gelu(x, _domain="com.microsoft")
