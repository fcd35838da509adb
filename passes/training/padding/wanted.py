"""Which tokens are computed, worked out in the graph from the masks and from what takes rows."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.tokens import Part
from fuseline.engine.shapes.dims import multiply
from fuseline.passes.training.padding.attention import form_of
from fuseline.passes.training.padding.region import TokenRegion

__all__ = ["Wanted"]

_HIDDEN = -1e30
"""Added to a score, this or anything below leaves nothing of it."""


class Wanted:
    """The tokens that are computed, in order, and where to find them.

    They are the keys that some query sees, and the rows that readers take. Where the mask shows each token
    those in front of it alone, none behind the last one that counts is seen. A query from which every key is
    hidden weighs all of them alike: if it counts, so do all tokens of its sequence. Where no token is wanted,
    all are computed, since no runtime multiplies matrices without rows.
    """

    def __init__(self, op: Builder, region: TokenRegion, shape: ir.Value) -> None:
        """`shape` holds the sizes of the grid, and stays `sizes`."""
        self._op = op
        self._region = region
        self.sizes = shape
        batch, length = region.grid.batch, region.grid.length
        numbers = op.declare(
            op.Range(0, op.ReduceProd(shape, keepdims=0), 1), dims=(multiply(batch, length),)
        )
        self._numbers = {1: numbers, 2: op.declare(op.Reshape(numbers, shape), dims=(batch, length))}
        self._taken = {node: self._taken_by(node) for node in region.selections}
        flat = op.Reshape(self._mask(), [-1])
        # A name of its own: the number of tokens is that of no other grid.
        self.rows = op.declare(op.Squeeze(op.NonZero(flat), [0]), dims=(f"tokens.{batch}.{length}",))
        self._index = op.Sub(op.CumSum(op.Cast(flat, to=ir.DataType.INT64.value), 0), 1)
        self._parts: dict[Part, ir.Value] = {Part.ROW: self.rows}

    def part(self, part: Part) -> ir.Value:
        """Which rows of an operand the tokens need."""
        if part not in self._parts:
            length = self._op.Gather(self.sizes, 1)
            rows = self.rows
            self._parts[part] = (
                self._op.Mod(rows, length) if part is Part.PLACE else self._op.Div(rows, length)
            )
        return self._parts[part]

    def index(self, selection: ir.Node) -> ir.Value:
        """Where among the tokens a reader finds what it takes."""
        return self._op.Gather(self._index, self._taken[selection])

    def _taken_by(self, node: ir.Node) -> ir.Value:
        """The numbers of the rows that a reader takes: it takes them out of the numbers of all."""
        leading = self._region.grid.leading(node.inputs[0])
        assert leading is not None
        changed = {}
        if node.op_type == "Gather":  # counted from the front, where no axis has gone
            rank = len(node.inputs[0].shape or ()) if node.inputs[0] is not None else 0
            axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
            changed = {"axis": axis % rank}
        return self._op.copy(node, [self._numbers[leading], *node.inputs[1:]], changed)[0]

    def _mask(self) -> ir.Value:
        """[batch, length]: which tokens are computed."""
        op = self._op
        masks = self._masks()
        whole = [mask for mask in masks if mask.ordered is None]
        wanted = op.Expand(whole[0].seen if whole else np.array([[False]]), self.sizes)
        for mask in whole[1:]:
            wanted = op.Or(wanted, mask.seen)
        for taken in self._taken.values():
            flat = op.Cast(op.Reshape(wanted, [-1]), to=ir.DataType.INT64.value)
            places = op.Reshape(taken, [-1])
            ones = op.Expand(np.array([1]), op.Shape(places))
            marked = op.ScatterElements(flat, places, ones, axis=0)
            wanted = op.Reshape(op.Cast(marked, to=ir.DataType.BOOL.value), self.sizes)
        wanted = op.Or(wanted, op.Not(_any(op, wanted, [0, 1])))
        wanted = self._in_front_of(wanted, masks)
        for mask in masks:
            counting = op.And(mask.blind, wanted) if mask.own_queries else mask.blind
            wanted = op.Or(wanted, _any(op, counting, [1]))
            if mask.unclear is not None:
                wanted = op.Or(wanted, mask.unclear)
        return wanted

    def _in_front_of(self, wanted: ir.Value, masks: list[_Mask]) -> ir.Value:
        """Besides, what is seen by masks that follow the order: up to the last token that counts."""
        op = self._op
        ordered = [mask for mask in masks if mask.ordered is not None]
        if not ordered:
            return wanted
        counts = op.Cast(wanted, to=ir.DataType.INT32.value)
        reached = op.Greater(op.CumSum(counts, 1, reverse=1), np.int32(0))
        for mask in ordered:
            reached = op.Or(reached, op.Not(mask.ordered))
        for mask in ordered:
            wanted = op.Or(wanted, op.And(mask.seen, reached))
        return wanted

    def _masks(self) -> list[_Mask]:
        """One for each different mask."""
        found: dict[tuple[ir.Value | bool, ...], _Mask] = {}
        for node in self._region.attention():
            form = form_of(node)
            assert form is not None
            additions, own = form.additions(node), node in self._region.nodes
            if (*additions, own) not in found:
                found[*additions, own] = _Mask(self._op, additions, own, self._region.in_order(node))
        return list(found.values())


def _any(op: Builder, flags: ir.Value, axes: list[int], keepdims: int = 1) -> ir.Value:
    highest = op.ReduceMax(op.Cast(flags, to=ir.DataType.INT32.value), axes, keepdims=keepdims)
    return op.Cast(highest, to=ir.DataType.BOOL.value)


class _Mask:
    """What is added to scores [batch, heads, queries, keys] tells which keys are hidden."""

    def __init__(
        self, op: Builder, additions: list[ir.Value], own_queries: bool, may_follow_order: bool
    ) -> None:
        mask, *others = additions
        self.own_queries = own_queries
        """Whether the queries are tokens of the same sequences."""
        self.seen = op.Not(self._hidden(op, op.ReduceMax(mask, [1, 2], keepdims=0)))
        """[batch or 1, keys or 1]: some query of some head sees the key."""
        tops = op.ReduceMax(mask, [3], keepdims=0)
        # Of a row that is −∞ throughout attention makes zeros, whatever the keys are.
        alike = op.And(self._hidden(op, tops), op.Not(op.Equal(tops, np.float32(-np.inf))))
        self.blind = _any(op, alike, [1], keepdims=0)
        """[batch or 1, queries or 1]: some head hides every key from the query, so that all weigh alike."""
        self.ordered = self._shows_nothing_behind(op, mask) if may_follow_order else None
        """Whether no query sees a key behind it."""
        self.unclear = None
        """Whether a bias hides keys besides, or shows what the mask hides."""
        if others:
            lowest = op.ReduceMin(others[0], [0, 1, 2, 3], keepdims=0)
            highest = op.ReduceMax(others[0], [0, 1, 2, 3], keepdims=0)
            self.unclear = op.Or(self._hidden(op, lowest), op.GreaterOrEqual(highest, np.float32(-_HIDDEN)))

    def _shows_nothing_behind(self, op: Builder, mask: ir.Value) -> ir.Value:
        seen = op.Not(self._hidden(op, op.ReduceMax(mask, [0, 1], keepdims=0)))
        behind = op.Trilu(op.Cast(seen, to=ir.DataType.INT64.value), 1)
        return op.Equal(op.ReduceMax(behind, [0, 1], keepdims=0), np.int64(0))

    @staticmethod
    def _hidden(op: Builder, values: ir.Value) -> ir.Value:
        """Of what is no number it is not said that it hides."""
        return op.LessOrEqual(values, _HIDDEN)
