"""The bias of a linear layer and the Gelu behind it."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.native import native
from fuseline.passes.fusion.fragments.values import broadcasts_last

__all__ = ["FuseBiasGelu", "FuseBiasGeluTraining"]


class FuseBiasGelu(Fusion):
    """com.microsoft.Gelu(x+bias) → com.microsoft.BiasGelu(x, bias), FastGelu likewise"""

    name = "fuse-bias-gelu"
    phase = "inference"
    produces = ("BiasGelu", "FastGelu")

    def match(self, op: Op, x: Term, bias: Term) -> Term:
        return op.node(("Gelu", "FastGelu"), op.Add(x, bias), _domain="com.microsoft", _label="gelu")

    def check(self, x: ir.Value, bias: ir.Value) -> str | None:
        if not broadcasts_last(bias, x):
            return f"{bias.name!r} is not known to be a vector along the last axis"
        return None

    def replace(self, op: Builder, x: ir.Value, bias: ir.Value, context: Context) -> ir.Value:
        if context.node("gelu").op_type == "Gelu":
            return op.BiasGelu(x, bias, _domain="com.microsoft")
        return op.FastGelu(x, bias, _domain="com.microsoft")


class FuseBiasGeluTraining(FuseBiasGelu, target="training"):
    """com.microsoft.Gelu(x+bias) → fuseline.FusedBiasGelu(x, bias), FastGelu → FusedBiasGeluTanh"""

    produces = ("FusedBiasGelu", "FusedBiasGeluTanh")

    def replace(self, op: Builder, x: ir.Value, bias: ir.Value, context: Context) -> ir.Value:
        tanh = context.node("gelu").op_type == "FastGelu"
        return native(op, "FusedBiasGeluTanh" if tanh else "FusedBiasGelu", x, bias)
