"""A convolution and the activation behind it."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op

__all__ = ["FuseConvActivation"]

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu")


class FuseConvActivation(Fusion):
    """Relu(Conv(x, w, b)) → com.microsoft.FusedConv<activation="Relu">

    Sigmoid, Tanh, LeakyRelu and Clip between constants likewise.
    """

    name: ClassVar[str] = "fuse-conv-activation"
    phase: ClassVar[Phase] = "inference"
    produces: ClassVar[tuple[str, ...]] = ("FusedConv",)

    def match(self, op: Op, x: Any, weight: Any, low: Any, high: Any, bias: Any = None) -> Any:
        conv = op.Conv(x, weight, bias, _label="conv")
        return op.one_of(
            op.node(_ACTIVATIONS, conv, _label="activation"), op.Clip(conv, low, high, _label="activation")
        )

    def check(self, context: Context, low: Any = None, high: Any = None) -> str | None:
        for bound in (low, high):
            if bound is not None and context.scalar(bound) is None:
                return f"the bound {bound.name!r} is not a constant"
        return None

    def replace(
        self,
        op: Builder,
        x: Any,
        weight: Any,
        context: Context,
        bias: Any = None,
        low: Any = None,
        high: Any = None,
    ) -> Any:
        activation = context.node("activation")
        given = {name: attribute.value for name, attribute in context.node("conv").attributes.items()}
        if activation.op_type == "LeakyRelu":
            slope = activation.attributes.get("alpha")
            given["activation_params"] = [slope.as_float() if slope is not None else 0.01]
        if activation.op_type == "Clip":
            given["activation_params"] = [context.scalar(low), context.scalar(high)]
        return op.FusedConv(x, weight, bias, **given, activation=activation.op_type, _domain="com.microsoft")
