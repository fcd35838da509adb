"""The second product of attention over batch and heads in one dimension."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of

__all__ = ["UnflattenWeightedSum"]


class UnflattenWeightedSum(Fusion):
    """Reshape(Reshape(p)·Reshape(v)) over [B·H,S,T] → p·v over [B,H,S,T], which other passes fuse"""

    name = "unflatten-weighted-sum"
    produces = ("MatMul",)

    def match(self, op: Op, p: Term, v: Term, flat_p: Term, flat_v: Term, shape: Term) -> Term:
        product = op.MatMul(op.Reshape(p, flat_p, _label="left"), op.Reshape(v, flat_v, _label="right"))
        return op.Reshape(product, shape)

    def check(self, p: ir.Value, v: ir.Value, context: Context) -> str | None:
        made, left, right = dims_of(context.match.root.outputs[0]), dims_of(p), dims_of(v)
        flat = [dims_of(context.node(label).outputs[0]) for label in ("left", "right")]
        if left is None or right is None or made is None or any(f is None or len(f) != 3 for f in flat):
            return "the shapes are not known"
        if len(left) != 4 or len(right) != 4 or left[:2] != right[:2]:
            return f"{left} and {right} are not [batch, heads, length, …]"
        if made != (*left[:3], right[3]) or left[2:] != flat[0][1:] or right[2:] != flat[1][1:]:  # type: ignore[index]
            return f"the shapes {left} and {right} are not flattened over batch and heads alone"
        return None

    def replace(self, op: Builder, p: ir.Value, v: ir.Value) -> ir.Value:
        return op.MatMul(p, v)
