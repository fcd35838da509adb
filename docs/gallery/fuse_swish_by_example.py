"""8. A pattern by example: write a small torch function, get its ONNX pattern."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term


class FuseSwishByExample(Fusion):
    """the graph of torch's x·sigmoid(x) → com.microsoft.QuickGelu<alpha=1>(x)"""

    name = "fuse-swish-by-example"
    produces = ("QuickGelu",)

    def match(self, op: Op, x: Term) -> Term:
        return op.example(lambda t: t * t.sigmoid(), x, shapes=[(2, 3)])

    def replace(self, op: Builder, x: ir.Value) -> ir.Value:
        return op.QuickGelu(x, alpha=1.0, _domain="com.microsoft")
