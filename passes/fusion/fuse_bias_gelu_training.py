"""Bias and Gelu with their own backward."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context
from fuseline.passes.fusion.fragments.native import native
from fuseline.passes.fusion.fuse_bias_gelu import FuseBiasGelu

__all__ = ["FuseBiasGeluTraining"]


class FuseBiasGeluTraining(FuseBiasGelu):
    """com.microsoft.Gelu(x+bias) → fuseline.FusedBiasGelu(x, bias), FastGelu → FusedBiasGeluTanh"""

    name = "fuse-bias-gelu-training"
    phase = "pre-gradient"
    counterpart = None
    produces = ("FusedBiasGelu", "FusedBiasGeluTanh")

    def replace(self, op: Builder, x: ir.Value, bias: ir.Value, context: Context) -> ir.Value:
        tanh = context.node("gelu").op_type == "FastGelu"
        return native(op, "FusedBiasGeluTanh" if tanh else "FusedBiasGelu", x, bias)
