"""1. A two-node peephole: the pattern is code, its parameters are what it captures."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term


class DropDoubleNegation(Fusion):
    """Neg(Neg(x)) → x"""

    name = "drop-double-negation"

    def match(self, op: Op, x: Term) -> Term:
        return op.Neg(op.Neg(x))

    def replace(self, op: Builder, x: ir.Value) -> ir.Value:
        return x
