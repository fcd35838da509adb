"""A matrix product and the bias behind it."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.values import broadcasts_last, is_vector, rank

__all__ = ["FuseMatmulAdd"]


class FuseMatmulAdd(Fusion):
    """MatMul(a, b)+c of matrices → Gemm(a, b, c)

    Where a has more than two dimensions a MatMul is left alone: the Reshapes a Gemm needs buy nothing.
    """

    name = "fuse-matmul-add"
    produces = ("Gemm",)

    def match(self, op: Op, a: Term, b: Term, c: Term) -> Term:
        return op.Add(op.MatMul(a, b), c)

    def check(self, a: ir.Value, b: ir.Value, c: ir.Value) -> str | None:
        if rank(a) != 2 or rank(b) != 2:
            return f"the factors have the shapes {dims_of(a)} and {dims_of(b)}, not of matrices"
        if not _is_summed(a, b):
            return f"{a.name!r} may have no columns, and a Gemm over nothing fails where a MatMul runs"
        if not is_vector(c, 1) and not broadcasts_last(c, b):
            return f"{c.name!r} has the shape {dims_of(c)}, not that of a row of the product"
        return None

    def replace(self, op: Builder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return op.Gemm(a, b, c)


def _is_summed(a: ir.Value, b: ir.Value) -> bool:
    """Whether there surely is something to sum over."""
    lengths = ((dims_of(a) or (None,))[-1], (dims_of(b) or (None,))[0])
    return any(isinstance(length, int) and length > 0 for length in lengths)
