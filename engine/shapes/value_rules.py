"""What operators make of integer tensors that hold sizes: the rules that records name as `content`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from fuseline.engine.nodes import attribute, is_op
from fuseline.engine.shapes import dims
from fuseline.engine.shapes.dims import Dim
from fuseline.engine.shapes.known import INTEGERS, Known

if TYPE_CHECKING:
    from fuseline.engine.shapes.values import ShapeValues

__all__ = [
    "LARGEST",
    "cast",
    "concat",
    "constant_of_shape",
    "divide",
    "elementwise",
    "gather",
    "reduce_prod",
    "reshape",
    "same",
    "shape",
    "size",
    "slice_",
    "squeeze",
    "unsqueeze",
    "where",
]

LARGEST = 64


def shape(values: ShapeValues, node: ir.Node) -> Known | None:
    found = dims.dims_of(node.inputs[0])
    if found is None:
        return None
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(found))
    return Known(found[start:end])


def size(values: ShapeValues, node: ir.Node) -> Known | None:
    found = dims.dims_of(node.inputs[0])
    return Known((dims.product(found),), 0) if found is not None else None


def same(values: ShapeValues, node: ir.Node) -> Known | None:
    return values[node.inputs[0]]


def cast(values: ShapeValues, node: ir.Node) -> Known | None:
    data, to = values[node.inputs[0]], node.attributes.get_int("to", 0)
    return replace(data, dtype=ir.DataType(to)) if data is not None and to in INTEGERS else None


def gather(values: ShapeValues, node: ir.Node) -> Known | None:
    data, indices = values[node.inputs[0]], values[node.inputs[1]]
    numbers = indices.numbers if indices is not None else None
    if data is None or data.rank != 1 or indices is None or numbers is None:
        return None
    size = len(data.items)
    if any(not -size <= i < size for i in numbers):
        return None
    return Known(tuple(data.items[i] for i in numbers), indices.rank, data.dtype)


def concat(values: ShapeValues, node: ir.Node) -> Known | None:
    items: list[Dim] = []
    dtype = ir.DataType.INT64
    for part in (values[v] for v in node.inputs):
        if part is None or part.rank != 1:
            return None
        items.extend(part.items)
        dtype = part.dtype
    return Known(tuple(items), dtype=dtype)


def slice_(values: ShapeValues, node: ir.Node) -> Known | None:
    data = values[node.inputs[0]]
    if data is None or data.rank != 1:
        return None
    if values.opset(node) < 10:
        starts: tuple[int, ...] | None = tuple(node.attributes.get_ints("starts", ()))
        ends: tuple[int, ...] | None = tuple(node.attributes.get_ints("ends", ()))
        steps: tuple[int, ...] | None = (1,)
    else:
        starts, ends = values.numbers(node.inputs[1]), values.numbers(node.inputs[2])
        step = node.inputs[4] if len(node.inputs) > 4 else None
        steps = values.numbers(step) if step is not None else (1,)
    if starts is None or ends is None or steps is None or len(starts) != 1 or steps[0] < 1:
        return None
    return replace(data, items=data.items[starts[0] : ends[0] : steps[0]])


def squeeze(values: ShapeValues, node: ir.Node) -> Known | None:
    data, axes = values[node.inputs[0]], values.axes(node)
    if data is None or axes is None:
        return None
    if data.rank == 1 and len(data.items) == 1:
        return replace(data, rank=0)
    return data if not axes and data.rank == 1 else None


def unsqueeze(values: ShapeValues, node: ir.Node) -> Known | None:
    data, axes = values[node.inputs[0]], values.axes(node)
    if data is None or data.rank != 0 or axes not in ((0,), (-1,)):
        return None
    return replace(data, rank=1)


def reshape(values: ShapeValues, node: ir.Node) -> Known | None:
    data, target = values[node.inputs[0]], values.numbers(node.inputs[1])
    if data is None or target is None or len(target) > 1:
        return None
    return replace(data, rank=len(target))


def constant_of_shape(values: ShapeValues, node: ir.Node) -> Known | None:
    shape = values.numbers(node.inputs[0])
    if shape is None or len(shape) > 1:
        return None
    count, value = shape[0] if shape else 1, attribute(node, "value", None)
    if count > LARGEST or value is None or value.dtype not in INTEGERS:
        return None
    return Known((int(value.numpy().reshape(-1)[0]),) * count, len(shape), value.dtype)


def elementwise(operation: Callable[[Dim, Dim], Dim]) -> Callable[[ShapeValues, ir.Node], Known | None]:
    def rule(values: ShapeValues, node: ir.Node) -> Known | None:
        a, b = values[node.inputs[0]], values[node.inputs[1]]
        if a is None or b is None:
            return None
        count = max(len(a.items), len(b.items))
        if {len(a.items), len(b.items)} - {1, count}:
            return None
        left = a.items * count if len(a.items) == 1 else a.items
        right = b.items * count if len(b.items) == 1 else b.items
        return Known(tuple(map(operation, left, right)), max(a.rank, b.rank), a.dtype)

    return rule


def divide(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        # Towards zero, and exact: a quotient of floats is not, beyond 2⁵³.
        quotient = abs(a) // abs(b) if b else None
        return quotient if quotient is None or (a < 0) == (b < 0) else -quotient
    return dims.divide(a, b)


def reduce_prod(values: ShapeValues, node: ir.Node) -> Known | None:
    data = values[node.inputs[0]]
    if data is None or data.rank != 1 or bool(node.attributes.get_int("noop_with_empty_axes", 0)):
        return None
    rank = int(node.attributes.get_int("keepdims", 1))
    return replace(data, items=(dims.product(data.items),), rank=rank)


def where(values: ShapeValues, node: ir.Node) -> Known | None:
    """Where(Equal(a, b), x, y): exporters compute the target of Expand this way."""
    condition = node.inputs[0].producer() if node.inputs[0] is not None else None
    if condition is None or not is_op(condition, "Equal"):
        return None
    a, b = values[condition.inputs[0]], values[condition.inputs[1]]
    x, y = values[node.inputs[1]], values[node.inputs[2]]
    if a is None or b is None or x is None or y is None:
        return None
    count = max(len(k.items) for k in (a, b, x, y))
    rows = [k.items * count if len(k.items) == 1 else k.items for k in (a, b, x, y)]
    if any(len(r) != count for r in rows):
        return None
    chosen = tuple(_choose(*column) for column in zip(*rows, strict=True))
    return Known(chosen, max(k.rank for k in (a, b, x, y)), x.dtype)


def _choose(a: Dim, b: Dim, x: Dim, y: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return x if a == b else y
    if a is not None and a == b:
        return x
    if _never_equal(a, b) or _never_equal(b, a):
        return y
    return x if x == y else None


def _never_equal(dim: Dim, number: Dim) -> bool:
    """A dimension, or a sum of them, is never negative."""
    return isinstance(dim, str) and "-" not in dim and isinstance(number, int) and number < 0
