"""What an input is for, read off the nodes that use it: an index into a table, a label, a shape, a mask.

Random numbers are wrong for many inputs: an index must lie inside its table, a label below the number of
classes, a shape must fit the data. Each input's uses are followed through nodes that only move elements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.inputs.fixed import fixed_content
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op
from fuseline.engine.operators import Trait, record
from fuseline.engine.shapes.dims import dims_of

__all__ = ["Role", "roles"]

Kind = Literal["any", "index", "mask", "positions", "fixed", "length", "divisor", "switch"]

_MASK = re.compile(r"mask", re.IGNORECASE)
_POSITIONS = re.compile(r"position", re.IGNORECASE)
_LENGTH = re.compile(r"(^|_)(len|lens|length|lengths|seqlens?)($|_)", re.IGNORECASE)
_SEARCH_LIMIT = 2000


@dataclass(frozen=True)
class Role:
    """`bound` is exclusive: a number, or the key of a free dimension. `content` is what a fixed input holds,
    or the alternatives of a switch, which successive input sets take in turn."""

    kind: Kind = "any"
    bound: int | str | None = None
    content: Any = None


def roles(model: Model) -> dict[str, Role]:
    """The role of every graph input."""
    return {v.name or "": _role(model, v) for v in model.graph.inputs}


def _role(model: Model, value: ir.Value) -> Role:
    name = value.name or ""
    if _MASK.search(name):
        return Role("mask")
    bounds: list[int | str] = []
    for node, index, shift in _final_uses(model, value):
        choices = _choices(model, node, index, value)
        if choices is not None:
            return Role("switch", content=choices)
        content = fixed_content(model, node, index, value)
        if content is not None:
            return Role("fixed", content=content)
        if node.op_type in ("Div", "Mod") and index == 1:
            return Role("divisor")
        bound = _bound(node, index)
        if isinstance(bound, int) and bound - shift > 0:
            bounds.append(bound - shift)
        elif isinstance(bound, str):
            bounds.append(bound)
    numbers = [b for b in bounds if isinstance(b, int)]
    bound = min(numbers) if numbers else next(iter(bounds), None)
    if _POSITIONS.search(name) and not re.search(r"(start|end)_pos", name):
        return Role("positions", bound)
    if bound is not None:
        return Role("index", bound)
    return Role("length") if _LENGTH.search(name) else Role()


def _choices(model: Model, node: ir.Node, index: int, value: ir.Value) -> tuple[int | bool, ...] | None:
    """Values of a scalar that lead down different branches."""
    if value.shape is None or len(value.shape) > 1 or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "If":
        return (True, False)
    if node.op_type != "Equal" or value.dtype is None or value.dtype.is_floating_point():
        return None
    compared = constant(model, node.inputs[1 - index], at_most=1)
    if compared is None or compared.size != 1:
        return None
    number = int(compared.reshape(-1)[0])
    return (number, number // 2) if number > 1 else (number, number + 1)


def _final_uses(model: Model, value: ir.Value) -> Iterator[tuple[ir.Node, int, int]]:
    """(node, input index, constant added on the way) for every use, seen through element-moving nodes."""
    stack, seen = [(value, 0)], {value}
    while stack and len(seen) < _SEARCH_LIMIT:
        current, shift = stack.pop()
        for node, index in current.uses():
            yield node, index, shift
            for follower, more in _carried(model, node, index):
                if follower not in seen:
                    seen.add(follower)
                    stack.append((follower, shift + more))


def _carried(model: Model, node: ir.Node, index: int) -> Iterator[tuple[ir.Value, int]]:
    """The values that carry the elements of input `index` on, with the constant that was added."""
    op = node.op_type
    if node.domain not in ("", "ai.onnx"):
        function = model.ir.functions.get(node.op_identifier())
        if function is not None and index < len(function.inputs):
            yield function.inputs[index], 0
        return
    operator = record(node)
    moves = operator is not None and operator.has(Trait.MOVES) and index == 0
    if moves or op == "Concat" or (op == "Where" and index > 0):
        yield from ((v, 0) for v in node.outputs)
    elif op in ("Add", "Sub") and (op == "Add" or index == 0):
        added = constant(model, node.inputs[1 - index], at_most=1)
        if added is not None and added.size == 1 and math.isfinite(float(added.reshape(-1)[0])):
            amount = int(added.reshape(-1)[0])
            yield node.outputs[0], amount if op == "Add" else -amount
    elif op in ("Loop", "Scan"):
        body = node.attributes["body"].as_graph()
        if index < len(body.inputs):
            yield body.inputs[index], 0


def _bound(node: ir.Node, index: int) -> int | str | None:
    """The exclusive bound that this use puts on its input's elements."""
    operator = record(node)
    bound = operator.bounds.get(index) if operator is not None else None
    if bound is not None and not node.attributes.get_int("batch_dims", 0):
        axis = node.attributes.get_int(bound.axis, 0) if isinstance(bound.axis, str) else bound.axis
        return _size(node.inputs[bound.table], axis)
    if is_op(node, "OneHot") and index == 0:
        return _size(node.outputs[0], node.attributes.get_int("axis", -1))
    return None


def _size(value: ir.Value | None, axis: int) -> int | str:
    """The size of a dimension, its symbol, or 1 where nothing is known: index 0 is always inside."""
    dims = dims_of(value)
    if dims is None or not -len(dims) <= axis < len(dims):
        return 1
    dim = dims[axis]
    return 1 if dim is None else dim
