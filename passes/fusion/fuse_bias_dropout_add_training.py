"""What closes a residual branch: bias, dropout, sum."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.dropout import dropout_inputs
from fuseline.passes.fusion.fragments.native import native, nothing
from fuseline.passes.fusion.fragments.values import broadcasts_last, same_shape

__all__ = ["FuseBiasDropoutAddTraining"]


class FuseBiasDropoutAddTraining(Fusion):
    """Dropout(x+bias)+residual → fuseline.FusedBiasDropoutAdd, which stores no mask"""

    name = "fuse-bias-dropout-add-training"
    phase = "pre-gradient"
    produces = ("FusedBiasDropoutAdd",)

    def match(self, op: Op, x: Term, bias: Term, ratio: Term, training: Term, residual: Term) -> Term:
        inner = op.one_of(op.Add(x, bias), x, pick="plain")
        return op.Add(op.Dropout(inner, ratio, training, _label="dropout"), residual)

    def check(
        self,
        x: ir.Value,
        ratio: ir.Value,
        training: ir.Value,
        residual: ir.Value,
        plain: int,
        context: Context,
        bias: ir.Value | None = None,
    ) -> str | None:
        if bias is not None and not broadcasts_last(bias, x):
            return f"{bias.name!r} is not known to be a vector along the last axis"
        if not same_shape(x, residual):
            shapes = f"{x.name!r} {dims_of(x)} and {residual.name!r} {dims_of(residual)}"
            return f"{shapes} are not known to have one shape"
        if context.scalar(ratio) is None or context.scalar(training) is None:
            return "ratio or training mode of the dropout is not constant"
        return None

    def replace(
        self,
        op: Builder,
        x: ir.Value,
        ratio: ir.Value,
        training: ir.Value,
        residual: ir.Value,
        context: Context,
        bias: ir.Value | None = None,
    ) -> ir.Value:
        rate, seed, stream = dropout_inputs(op, context, ratio, training)
        added = bias if bias is not None else nothing(op)
        return native(op, "FusedBiasDropoutAdd", x, added, residual, rate, seed, stream=stream)
