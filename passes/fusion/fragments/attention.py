"""Scaled dot-product attention as exporters write it out."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Context, Op, Term
from fuseline.engine.shapes.dims import Dims, dims_of, equal

__all__ = [
    "HEADS_LAST",
    "check_attention",
    "keys_transposed",
    "masked",
    "scaled",
    "total_scale",
    "weights",
]

TRANSPOSED, HEADS_LAST, FLATTENED = range(3)


def keys_transposed(op: Op, k: Term, to_flat: Term, from_flat: Term) -> Term:
    """[B,H,D,T] from k as [B,H,T,D], as [B,T,H,D], or through [B·H,T,D]."""
    return op.one_of(
        op.Transpose(k, perm=(0, 1, 3, 2)),
        op.Transpose(k, perm=(0, 2, 3, 1)),
        op.Reshape(op.Transpose(op.Reshape(k, to_flat, _label="flat"), perm=(0, 2, 1)), from_flat),
        pick="layout",
    )


def scaled(op: Op, x: Term, factor: Term, divisor: Term | None = None) -> Term:
    """x, x·factor or x/divisor."""
    ways = [op.Mul(x, factor), x]
    if divisor is not None:
        ways.insert(1, op.Div(x, divisor))
    return op.one_of(*ways)


def weights(op: Op, scores: Term, visible: Term, ratio: Term, training: Term) -> Term:
    """Softmax, with what exporters put behind it: a guard for rows that see nothing, a cast, dropout."""
    soft = op.Softmax(scores, axis=-1)
    guarded = op.one_of(
        op.Where(op.IsNaN(soft, _label="guard"), 0.0, soft), op.Where(visible, soft, 0.0), soft
    )
    cast = op.optional(op.Cast, guarded)
    return op.one_of(op.Dropout(cast, ratio, training), op.Dropout(cast, ratio), cast)


def masked(op: Op, scores: Term, mask: Term, bias: Term, keep: Term, drop: Term, lowest: Term) -> Term:
    """Scores with an additive mask and bias, or with some of them replaced by the lowest number."""
    biased = op.one_of(op.Add(scores, bias), scores)
    return op.one_of(
        op.Add(op.Add(scores, bias), mask),
        op.Where(keep, biased, lowest),
        op.Where(drop, lowest, biased),
        op.Add(scores, mask),
        scores,
    )


def check_attention(
    context: Context, q: ir.Value, k: ir.Value, v: ir.Value, layout: int, form: int
) -> str | None:
    """What any kernel needs: known heads, a constant scale, a mask that masks, heads merged as they were."""
    for name, value in (("q", q), ("k", k), ("v", v)):
        known = dims_of(value)
        if known is None or len(known) != 4:
            return f"the {name} {value.name!r} has the shape {known}, not [batch, heads, length, size]"
        axis = 2 if name == "k" and layout == HEADS_LAST else 1
        if not isinstance(known[axis], int) or not isinstance(known[3], int):
            return f"number or size of heads is not known: {value.name!r} has the shape {known}"
    batches = [(dims_of(value) or ())[0] for value in (q, k, v)]
    if 1 in batches and any(batch != 1 for batch in batches):
        return f"q, k and v have the batches {', '.join(map(str, batches))}, and no kernel repeats one"
    heads, size = (dims_of(q) or ())[1::2]
    assert isinstance(heads, int)
    assert isinstance(size, int)
    widened = _check_width(context, (batches[0], heads, (dims_of(q) or ())[2]))
    if widened is not None:
        return widened
    if total_scale(context) is None:
        return "the scale is not a constant"
    lowest = context.match.captures.get("lowest")
    if lowest is not None and (context.scalar(lowest) or 0.0) > -1e4:
        return f"the scores are masked by {context.scalar(lowest)}, not by a very low number"
    visible = context.match.captures.get("visible")
    if visible is not None and not _per_row(dims_of(visible)):
        return f"{visible.name!r} has the shape {dims_of(visible)}, not one place for each row of scores"
    if layout == FLATTENED and not _flattens_heads(dims_of(context.node("flat").outputs[0]), dims_of(k)):
        return f"{k.name!r} is flattened in an unknown way"
    if form == 0:
        return _check_merge(context, heads * size)
    return None


def _check_width(context: Context, rows: Dims) -> str | None:
    """What is added to the scores or chooses among them must not make more rows of them: results would
    have them too."""
    for name in ("mask", "bias", "keep", "drop", "visible"):
        value: ir.Value | None = context.match.captures.get(name)
        shape = dims_of(value) or ()
        found = (1,) * (4 - len(shape)) + tuple(shape)
        if value is not None and any(own == 1 != other for own, other in zip(rows, found, strict=False)):
            return f"{value.name!r} has the shape {shape}, more than the scores' {rows} of each column"
    return None


def _per_row(dims: Dims | None) -> bool:
    return dims is not None and len(dims) == 4 and dims[1] == 1 and dims[3] == 1


def _flattens_heads(flat: Dims | None, k: Dims | None) -> bool:
    return flat is not None and k is not None and equal(flat[1:], k[2:])


def _check_merge(context: Context, width: int) -> str | None:
    """The Reshape behind attention must merge the heads and nothing else."""
    made = dims_of(context.match.root.outputs[0])
    if made is None or made[-1] != width or len(made) not in (2, 3):
        return f"the heads are merged into the shape {made}, not into […, {width}]"
    return None


def total_scale(context: Context) -> float | None:
    """The product of all factors applied to q, k and the scores; None if one is not constant."""
    total = 1.0
    for name, sign in (("q_scale", 1), ("k_scale", 1), ("scale", 1), ("divisor", -1), ("q_divisor", -1)):
        value: ir.Value | None = context.match.captures.get(name)
        if value is not None:
            factor = context.scalar(value)
            if factor is None or factor == 0:
                return None
            total *= factor**sign
    return total
