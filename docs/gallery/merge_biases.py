"""6. Computing with constants: what is known before the model runs is computed in the pass."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term


class MergeBiases(Fusion):
    """x+a+b → x+(a+b), for constants a and b in any grouping"""

    name = "merge-biases"
    largest: int = 1 << 16
    """An option, because it is a field: merge-biases{largest=100}"""

    def match(self, op: Op, x: Term, a: Term, b: Term) -> Term:
        return op.associative("Add", x.of(constant=False), a.of(constant=True), b.of(constant=True))

    def check(self, a: ir.Value, b: ir.Value, context: Context) -> str | None:
        arrays = [context.constant(value) for value in (a, b)]
        if any(array is None or array.size > self.largest for array in arrays):
            return f"{a.name!r} or {b.name!r} has more than {self.largest} elements"
        return None

    def replace(self, op: Builder, x: ir.Value, a: ir.Value, b: ir.Value, context: Context) -> ir.Value:
        return op.Add(x, op.constant(context.constant(a) + context.constant(b), "bias"))  # type: ignore[operator]
