"""13. Onto an operator of your own: once its record is registered, every pass knows it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.operators import Trait, custom, register
from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term

DOMAIN = "gallery.own"

register(
    custom(
        DOMAIN,
        "SoftThreshold",
        "x",
        "y",
        attributes={"threshold": 0.0},
        shape="x",
        reference=lambda x, threshold: np.sign(x) * np.maximum(np.abs(x) - np.float32(threshold), 0),
        traits=Trait.ELEMENTWISE,
        library=None,  # the path of the shared library with the kernel, if there is one
    )
)


class FuseSoftThreshold(Fusion):
    """Sign(x)·Relu(Abs(x)−t) → gallery.own.SoftThreshold<threshold=t>(x)"""

    name = "fuse-soft-threshold"
    produces = ("SoftThreshold",)

    def match(self, op: Op, x: Term, t: Term) -> Term:
        return op.Mul(op.Sign(x), op.Relu(op.Sub(op.Abs(x), t)))

    def check(self, t: ir.Value, context: Context) -> str | None:
        found = context.scalar(t)
        return None if found is not None and found >= 0 else f"the threshold is {found}, not a number ≥ 0"

    def replace(self, op: Builder, x: ir.Value, t: ir.Value, context: Context) -> ir.Value:
        return op.SoftThreshold(x, _domain=DOMAIN, threshold=context.scalar(t))
