"""Questions about single values and trees, asked while matching."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import onnx_ir as ir

from fuseline.engine import constants
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op
from fuseline.engine.patterns.match import show
from fuseline.engine.patterns.terms import Associative, Constrained

__all__ = ["same", "trees", "violation"]


def same(model: Model, one: Any, other: Any) -> bool:
    """Whether two uses of one capture agree: the same value, or small constants of equal content."""
    if one is other:
        return True
    if not isinstance(one, ir.Value) or not isinstance(other, ir.Value):
        return bool(one == other)
    first = constants.constant(model, one, at_most=16)
    second = constants.constant(model, other, at_most=16) if first is not None else None
    return (
        second is not None
        and first is not None
        and first.shape == second.shape
        and bool((first == second).all())
    )


def violation(model: Model, term: Constrained, value: ir.Value | None) -> str | None:
    """What about the value is not as the term wants it."""
    if value is None:
        return None
    if term.dtypes is not None and value.dtype is not None and value.dtype not in term.dtypes:
        return f"{value.name!r} of type {value.dtype.name}"
    if term.rank is not None and (value.shape is None or len(value.shape) != term.rank):
        return f"{value.name!r} of " + ("unknown rank" if value.shape is None else f"rank {len(value.shape)}")
    if term.constant is not None and constants.is_constant(model, value) != term.constant:
        return show(model, value)
    return None


def trees(
    term: Associative, value: ir.Value | None, in_reach: Callable[[ir.Node], bool]
) -> Iterator[tuple[list[ir.Node], list[ir.Value | None]]]:
    """Ways of opening the tree at `value` until it has as many leaves as there are parts."""
    pending: list[tuple[list[ir.Node], list[ir.Value | None]]] = [([], [value])]
    seen: set[frozenset[ir.Node]] = set()
    while pending:
        nodes, leaves = pending.pop(0)
        if len(leaves) == len(term.parts):
            yield nodes, leaves
            continue
        for position, leaf in enumerate(leaves):
            node = leaf.producer() if leaf is not None else None
            if node is None or not is_op(node, term.op_type) or not in_reach(node):
                continue
            opened = [*nodes, node]
            if frozenset(opened) not in seen:
                seen.add(frozenset(opened))
                pending.append((opened, [*leaves[:position], *node.inputs, *leaves[position + 1 :]]))
