"""The logarithm of a Softmax."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term

__all__ = ["FuseLogSoftmax"]


class FuseLogSoftmax(Fusion):
    """Log(Softmax(x)) → LogSoftmax(x), which does not underflow"""

    name = "fuse-log-softmax"
    produces = ("LogSoftmax",)

    def match(self, op: Op, x: Term, axis: Term) -> Term:
        return op.Log(op.Softmax(x, axis=axis))

    def replace(self, op: Builder, x: ir.Value, axis: int) -> ir.Value:
        return op.LogSoftmax(x, axis=axis)
