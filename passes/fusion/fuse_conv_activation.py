"""A convolution and the activation behind it."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Context, Fusion, Op

__all__ = ["FuseConvActivation"]

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu")


class FuseConvActivation(Fusion):
    """Relu(Conv(x, w, b)) → com.microsoft.FusedConv<activation="Relu">; Sigmoid, Tanh, LeakyRelu likewise"""

    name: ClassVar[str] = "fuse-conv-activation"
    phase: ClassVar[Phase] = "inference"
    produces: ClassVar[tuple[str, ...]] = ("FusedConv",)

    def match(self, op: Op, x: Any, weight: Any, bias: Any = None) -> Any:
        return op.node(_ACTIVATIONS, op.Conv(x, weight, bias, _label="conv"), _label="activation")

    def replace(self, op: Builder, x: Any, weight: Any, context: Context, bias: Any = None) -> Any:
        activation = context.node("activation")
        given = {name: attribute.value for name, attribute in context.node("conv").attributes.items()}
        if activation.op_type == "LeakyRelu":
            slope = activation.attributes.get("alpha")
            given["activation_params"] = [slope.as_float() if slope is not None else 0.01]
        return op.FusedConv(x, weight, bias, **given, activation=activation.op_type, _domain="com.microsoft")
