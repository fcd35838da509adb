"""Linear layers as exporters write them out."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Context, Op, Term
from fuseline.engine.shapes.dims import dims_of, equal

__all__ = ["check_bias", "check_packable", "linear"]


def linear(op: Op, x: Term, weight: Term, bias: Term, *, transposed: bool) -> Term:
    """x·weightᵀ (or x·weight) + bias, the bias left out or not."""
    product = op.MatMul(x, op.Transpose(weight, perm=(1, 0)) if transposed else weight)
    return op.one_of(op.Add(product, bias), product)


def check_bias(bias: ir.Value | None, weight: ir.Value, *, transposed: bool) -> str | None:
    """Whether the bias has an element for every column: one of a single element would not survive packing."""
    columns = (dims_of(weight) or ())[:1] if transposed else (dims_of(weight) or ())[-1:]
    if bias is None or equal(dims_of(bias), columns):
        return None
    return f"the bias {bias.name!r} has the shape {dims_of(bias)}, not {columns} as its weight has columns"


def check_packable(context: Context, values: list[ir.Value | None]) -> str | None:
    """Whether weights (or biases) can become one: initializers of one shape and one kind, used here alone."""
    if all(v is None for v in values):
        return None
    first = values[0]
    for value in values:
        if value is None or first is None:
            return "some of the projections have a bias and some have none"
        if value.const_value is None or value.graph is not context.model.graph or value.is_graph_input():
            return f"{value.name!r} is not a weight of the main graph"
        if len(value.uses()) != 1:
            return f"{value.name!r} is also used elsewhere"
        if not equal(dims_of(value), dims_of(first)) or value.dtype != first.dtype:
            return f"{value.name!r} and {first.name!r} differ in shape or type"
        if _kinds(context, value) != _kinds(context, first):
            return f"of {value.name!r} and {first.name!r} only one is trained"
    return None


def _kinds(context: Context, value: ir.Value) -> tuple[bool, bool]:
    parameters = context.model.parameters
    return parameters.is_trainable(value.name), parameters.holds(value.name)
