"""A residual sum in front of a normalisation."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Op, Term
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.fusion.fragments.values import broadcasts_last, rank, same_shape

__all__ = ["check_residual", "residual", "skip_norm"]


def residual(op: Op, x: Term, skip: Term, bias: Term | None) -> Term:
    """x + bias + skip, or x + skip."""
    return op.one_of(op.Add(op.Add(x, bias), skip), op.Add(x, skip))


def check_residual(x: ir.Value, skip: ir.Value, *vectors: ir.Value | None) -> str | None:
    """ONNX Runtime's skip kernels take two inputs of one shape (or the second broadcast over the batch), and
    scale and biases as vectors."""
    for vector in vectors:
        if vector is not None and not broadcasts_last(vector, x):
            return f"{vector.name!r} is not known to be a vector along the last axis"
    if rank(x) not in (2, 3):
        return f"{x.name!r} has rank {rank(x)}, not 2 or 3"
    if same_shape(x, skip) or _over_batch(x, skip) or _over_batch(skip, x):
        return None
    return f"{x.name!r} {dims_of(x)} and {skip.name!r} {dims_of(skip)} are not known to have one shape"


def skip_norm(
    op: Builder,
    context: Context,
    op_type: str,
    x: ir.Value,
    skip: ir.Value,
    *rest: ir.Value | None,
    epsilon: float,
) -> tuple[ir.Value, ir.Value]:
    """The normalised sum, and the sum itself, as a further output where others read it."""
    total = context.match.outputs[1]
    kept = context.used_outside(total)
    # The operand with the batch comes first.
    first, second = (skip, x) if _over_batch(skip, x) else (x, skip)
    wanted = (True, False, False, True) if kept else (True,)
    made = op.node(op_type, first, second, *rest, epsilon=epsilon, _domain="com.microsoft", _outputs=wanted)
    return made[0], made[3] if kept else total


def _over_batch(x: ir.Value, skip: ir.Value) -> bool:
    whole, part = dims_of(x), dims_of(skip)
    if whole is None or part is None or len(whole) != 3 or None in whole:
        return False
    return part in ((1, *whole[1:]), whole[1:])
