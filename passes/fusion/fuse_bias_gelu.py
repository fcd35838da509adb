"""The bias of a linear layer and the Gelu behind it."""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.passes.fusion.fragments.values import broadcasts_last

__all__ = ["FuseBiasGelu"]


class FuseBiasGelu(Fusion):
    """com.microsoft.Gelu(x+bias) → com.microsoft.BiasGelu(x, bias), FastGelu likewise"""

    name = "fuse-bias-gelu"
    # Typed as in Pass, since the counterpart inherits from this class.
    phase: ClassVar[Phase] = "inference"
    counterpart: ClassVar[str | None] = "fuse-bias-gelu-training"
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
