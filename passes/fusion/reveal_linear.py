"""A linear layer between the Reshapes that a Gemm needs."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of

__all__ = ["RevealLinear"]


class RevealLinear(Fusion):
    """Reshape(Gemm(Reshape(x, [-1,K]), w, b), […,N]) → MatMul(x, w)+b, whose bias other passes can take"""

    name = "reveal-linear"
    phase = "inference"
    produces = ("MatMul",)

    def match(self, op: Op, x: Term, flat: Term, weight: Term, shape: Term, bias: Term | None = None) -> Term:
        rows = op.Reshape(x, flat, _shared=True, _label="rows")
        return op.Reshape(
            op.Gemm(rows, weight, bias, alpha=1.0, beta=1.0, transA=0, transB=0, _label="gemm"), shape
        )

    def check(self, x: ir.Value, context: Context, bias: ir.Value | None = None) -> str | None:
        source, rows = dims_of(x), dims_of(context.node("rows").outputs[0])
        product, made = dims_of(context.node("gemm").outputs[0]), dims_of(context.match.root.outputs[0])
        if source is None or rows is None or product is None or made is None:
            return "the shapes are not known"
        if len(source) != 3 or len(made) != 3 or source[:2] != made[:2]:
            return f"{source} is not mapped row by row to {made}"
        if source[-1] != rows[-1] or made[-1] != product[-1]:
            return f"the Reshapes {source} → {rows} and {product} → {made} change the rows"
        if bias is not None and len(dims_of(bias) or ()) != 1:
            return f"the bias {bias.name!r} is not a vector"
        return None

    def replace(
        self, op: Builder, x: ir.Value, weight: ir.Value, context: Context, bias: ir.Value | None = None
    ) -> ir.Value:
        product = op.MatMul(x, weight)
        return product if bias is None else op.Add(product, bias)
