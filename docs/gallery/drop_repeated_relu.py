"""9. Repetition and noise: a chain of any length, and nodes in between that do not matter."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term


class DropRepeatedRelu(Fusion):
    """Relu(…Relu(x)) with Identity or Dropout in between → Relu(x), for inference"""

    name = "drop-repeated-relu"
    phase = "inference"
    produces = ("Relu",)

    def match(self, op: Op, x: Term) -> Term:
        return op.repeated(
            lambda inner: op.Relu(op.through(inner, "Identity", "Dropout")), op.Relu(x), at_least=1
        )

    def replace(self, op: Builder, x: ir.Value) -> ir.Value:
        return op.Relu(x)
