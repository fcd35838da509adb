"""The logarithm of a Sigmoid."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term

__all__ = ["FuseLogSigmoid"]


class FuseLogSigmoid(Fusion):
    """Log(Sigmoid(x)) → −Softplus(−x), which does not underflow: ONNX Runtime's Sigmoid is 0 below −18"""

    name = "fuse-log-sigmoid"
    produces = ("Softplus", "Neg")

    def match(self, op: Op, x: Term) -> Term:
        return op.Log(op.Sigmoid(x))

    def replace(self, op: Builder, x: ir.Value) -> ir.Value:
        return op.Neg(op.Softplus(op.Neg(x)))
