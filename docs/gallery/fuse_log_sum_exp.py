"""5. Captured attributes and optional inputs: a parameter with the default None may be absent."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term


class FuseLogSumExp(Fusion):
    """Log(ReduceSum(Exp(x))) → ReduceLogSumExp(x), over the same axes"""

    name = "fuse-log-sum-exp"
    produces = ("ReduceLogSumExp",)

    def match(self, op: Op, x: Term, keepdims: Term, axes: Term | None = None) -> Term:
        return op.Log(op.ReduceSum(op.Exp(x), axes, keepdims=keepdims))

    def replace(self, op: Builder, x: ir.Value, keepdims: int, axes: ir.Value | None = None) -> ir.Value:
        return op.ReduceLogSumExp(x, axes, keepdims=keepdims)
