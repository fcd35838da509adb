"""A convolution and the activation behind it."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.nodes import attribute, attributes
from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term

__all__ = ["FuseConvActivation"]

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu")


class FuseConvActivation(Fusion):
    """Relu(Conv(x, w, b)) → com.microsoft.FusedConv<activation="Relu">

    Sigmoid, Tanh, LeakyRelu and Clip between constants likewise.
    """

    name = "fuse-conv-activation"
    phase = "inference"
    produces = ("FusedConv",)

    def match(self, op: Op, x: Term, weight: Term, low: Term, high: Term, bias: Term | None = None) -> Term:
        conv = op.Conv(x, weight, bias, _label="conv")
        return op.one_of(
            op.node(_ACTIVATIONS, conv, _label="activation"), op.Clip(conv, low, high, _label="activation")
        )

    def check(
        self, context: Context, low: ir.Value | None = None, high: ir.Value | None = None
    ) -> str | None:
        for bound in (low, high):
            if bound is not None and context.scalar(bound) is None:
                return f"the bound {bound.name!r} is not a constant"
        return None

    def replace(
        self,
        op: Builder,
        x: ir.Value,
        weight: ir.Value,
        context: Context,
        bias: ir.Value | None = None,
        low: ir.Value | None = None,
        high: ir.Value | None = None,
    ) -> ir.Value:
        activation = context.node("activation")
        given = attributes(context.node("conv")) | {"activation": activation.op_type}
        if activation.op_type == "LeakyRelu":
            given["activation_params"] = [attribute(activation, "alpha", 0.01)]
        if activation.op_type == "Clip":
            given["activation_params"] = [context.scalar(low), context.scalar(high)]
        fused: ir.Value = op.FusedConv(x, weight, bias, **given, _domain="com.microsoft")
        return fused
