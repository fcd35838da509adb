"""The gate of a gated linear unit, with its own backward."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.native import native
from fuseline.passes.fusion.fragments.values import same_shape

__all__ = ["FuseSwigluTraining"]


class FuseSwigluTraining(Fusion):
    """gate·Sigmoid(gate)·up → fuseline.FusedSwiGlu(gate, up)"""

    name = "fuse-swiglu-training"
    phase = "pre-gradient"
    produces = ("FusedSwiGlu",)

    def match(self, op: Op, gate: Term, up: Term) -> Term:
        return op.one_of(
            op.associative("Mul", gate, op.Sigmoid(gate), up),
            op.Mul(op.QuickGelu(gate, alpha=1.0, _domain="com.microsoft"), up),
        )

    def check(self, gate: ir.Value, up: ir.Value) -> str | None:
        if not same_shape(gate, up):
            return (
                f"{gate.name!r} {dims_of(gate)} and {up.name!r} {dims_of(up)} are not known to have one shape"
            )
        return None

    def replace(self, op: Builder, gate: ir.Value, up: ir.Value) -> ir.Value:
        return native(op, "FusedSwiGlu", gate, up)
