"""A MatMul and the Transposes in front of it."""

from __future__ import annotations

from itertools import zip_longest

import onnx_ir as ir

from fuseline.engine.nodes import is_op
from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.heads import permutation

__all__ = ["FuseMatmulTranspose"]


class FuseMatmulTranspose(Fusion):
    """MatMul(a, Transpose(b)) of the last two axes → com.microsoft.FusedMatMul<transB=1>(a, b)"""

    name = "fuse-matmul-transpose"
    phase = "inference"
    produces = ("FusedMatMul",)

    def match(self, op: Op, a: Term, b: Term) -> Term:
        left, right = (
            op.Transpose(a, _shared=True, _label="left"),
            op.Transpose(b, _shared=True, _label="right"),
        )
        return op.one_of(op.MatMul(left, right), op.MatMul(a, right), op.MatMul(left, b))

    def check(self, a: ir.Value, b: ir.Value, context: Context) -> str | None:
        for label in ("left", "right"):
            if context.has(label) and not _swaps_last(context.node(label).outputs[0]):
                return f"{context.node(label).name!r} does not swap just the last two axes"
        behind = _transpose_before(a)
        if behind is not None and behind is _transpose_before(b):
            return f"{behind.name!r} stands before both factors, and ONNX Runtime would take it out twice"
        if context.has("left") and not _same_batch(a, b):
            return (
                f"{a.name!r} may have an empty batch where {b.name!r} has another, and with its left side "
                f"transposed FusedMatMul refuses that"
            )
        return None

    def replace(self, op: Builder, a: ir.Value, b: ir.Value, context: Context) -> ir.Value:
        return op.FusedMatMul(
            a,
            b,
            transA=int(context.has("left")),
            transB=int(context.has("right")),
            _domain="com.microsoft",
        )


def _swaps_last(value: ir.Value) -> bool:
    perm = permutation(value)
    if perm is None or len(perm) < 2:
        return False
    rank = len(perm)
    return perm == (*range(rank - 2), rank - 1, rank - 2)


def _transpose_before(value: ir.Value) -> ir.Node | None:
    """The Transpose of a factor that ONNX Runtime would take into the product, through numbers times it."""
    node = value.producer()
    while node is not None and is_op(node, "Mul", "Div"):
        makers = [v.producer() for v in node.inputs if v is not None]
        node = next((m for m in makers if m is not None and not is_op(m, "Constant")), None)
    return node if is_op(node, "Transpose") else None


def _same_batch(a: ir.Value, b: ir.Value) -> bool:
    """Whether each size in front of the last two is a number on the left, or the right side has it too."""
    left, right = dims_of(a), dims_of(b)
    if left is None or right is None:
        return False
    sizes = zip_longest(reversed(left[:-2]), reversed(right[:-2]), fillvalue=1)
    return all(x == y or (isinstance(x, int) and x > 0) for x, y in sizes)
