"""Operators that treat the tokens of a batch alike, and what one token needs of their operands."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.operators import Trait, record
from fuseline.engine.rewriting.rowwise import columns, row_operands
from fuseline.engine.shapes.dims import Dim, Dims, dims_of, multiply, uncapped

__all__ = ["Grid", "Needs", "Part", "token_operands"]


class Part(enum.Enum):
    """What of an operand a token needs: all, its own row, the row of its place, that of its sequence."""

    WHOLE = enum.auto()
    ROW = enum.auto()
    PLACE = enum.auto()
    SEQUENCE = enum.auto()


Needs = Mapping[int, Part]
"""Operand → its part; operands that are not in it are the same for all tokens."""


@dataclass(frozen=True)
class Grid:
    """Sequences of tokens: values of [batch, length, …] or [batch·length, …] have a row for each token."""

    batch: Dim
    length: Dim

    def leading(self, value: ir.Value | None) -> int | None:
        """How many axes of the value are its rows; None if it has none, or their width is not known."""
        dims = dims_of(value)
        if not dims or None in (self.batch, self.length):
            return None
        axes = 2 if dims[:2] == (self.batch, self.length) else 1
        if axes == 1 and dims[0] != multiply(self.batch, self.length):
            return None
        return axes if columns(value, axes) is not None else None

    def part(self, dims: Dims, leading: int) -> Part | None:
        """What a token needs of an operand that broadcasts to rows; None if that cannot be told."""
        front = dims[:leading]
        if all(size == 1 for size in front):
            return Part.WHOLE
        if leading == 1:
            return Part.ROW if front[0] == multiply(self.batch, self.length) else None
        batch, length = front
        if length != 1 and length != self.length and uncapped(length) != self.length:
            return None
        if batch == 1:
            return Part.PLACE
        if batch != self.batch:
            return None
        return Part.SEQUENCE if length == 1 else Part.ROW if length == self.length else None


def token_operands(model: Model, node: ir.Node, grid: Grid) -> Needs | None:
    """What a token of the node's first result needs; None where tokens are mixed or that cannot be told."""
    leading = grid.leading(node.outputs[0])
    if leading is None:
        return None
    operator = record(node)
    if operator is not None and operator.has(Trait.ELEMENTWISE):
        return _elementwise(node, grid, leading)
    operands = row_operands(model, node, leading)
    if operands is None or any(grid.leading(node.inputs[p]) != n for p, n in operands.items()):
        return None
    return dict.fromkeys(operands, Part.ROW)


def _elementwise(node: ir.Node, grid: Grid, leading: int) -> Needs | None:
    rank = len(dims_of(node.outputs[0]) or ())
    needs: dict[int, Part] = {}
    for place, value in enumerate(node.inputs):
        dims = dims_of(value)
        if dims is None or None in dims:
            return None
        part = grid.part((1,) * (rank - len(dims)) + dims, leading)
        if part is None:
            return None
        if part is not Part.WHOLE:
            if columns(value, leading - (rank - len(dims))) is None:
                return None
            needs[place] = part
    return needs if Part.ROW in needs.values() else None
