"""4. Attributes as conditions: the numbers of HardSigmoid must be those of HardSwish."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term


class FuseHardSwish(Fusion):
    """x·HardSigmoid<alpha=1/6, beta=1/2>(x) → HardSwish(x)"""

    name = "fuse-hard-swish"
    produces = ("HardSwish",)

    def match(self, op: Op, x: Term) -> Term:
        return op.Mul(x, op.HardSigmoid(x, alpha=1 / 6, beta=0.5))

    def replace(self, op: Builder, x: ir.Value) -> ir.Value:
        return op.HardSwish(x)
