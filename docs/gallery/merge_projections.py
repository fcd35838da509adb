"""7. Several outputs: two products of one value become one, and a Split."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term


class MergeProjections(Fusion):
    """(x·a, x·b) → Split(x·[a b])"""

    name = "merge-projections"
    produces = ("Split",)

    def match(self, op: Op, x: Term, a: Term, b: Term) -> tuple[Term, Term]:
        return op.MatMul(x, a.of(constant=True, rank=2)), op.MatMul(x, b.of(constant=True, rank=2))

    def check(self, a: ir.Value, b: ir.Value, context: Context) -> str | None:
        shapes = [tuple(value.shape) for value in (a, b)]
        return None if shapes[0][:1] == shapes[1][:1] else f"the weights have the shapes {shapes}"

    def replace(
        self, op: Builder, x: ir.Value, a: ir.Value, b: ir.Value, context: Context
    ) -> tuple[ir.Value, ...]:
        parts = [context.constant(value) for value in (a, b)]
        sizes = [part.shape[1] for part in parts if part is not None]
        weight = op.constant(np.concatenate(parts, axis=1), "weight")  # type: ignore[arg-type]
        return op.Split(op.MatMul(x, weight), sizes, axis=-1, _outputs=2)
