"""A Gemm and the activation behind it."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.nodes import attributes
from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term

__all__ = ["FuseGemmActivation"]


class FuseGemmActivation(Fusion):
    """Relu(Gemm(a, b, c)) → com.microsoft.FusedGemm<activation="Relu">; Sigmoid and Tanh likewise"""

    name = "fuse-gemm-activation"
    phase = "inference"
    produces = ("FusedGemm",)

    def match(self, op: Op, a: Term, b: Term, c: Term | None = None) -> Term:
        return op.node(("Relu", "Sigmoid", "Tanh"), op.Gemm(a, b, c, _label="gemm"), _label="activation")

    def replace(
        self, op: Builder, a: ir.Value, b: ir.Value, context: Context, c: ir.Value | None = None
    ) -> ir.Value:
        given = attributes(context.node("gemm")) | {"activation": context.node("activation").op_type}
        fused: ir.Value = op.FusedGemm(a, b, c, **given, _domain="com.microsoft")
        return fused
