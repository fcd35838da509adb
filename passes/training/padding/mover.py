"""Builds the nodes for the tokens that count beside those for all."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute
from fuseline.engine.operators import Trait, record
from fuseline.engine.rewriting.builder import Attribute, Builder
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.rewriting.rowwise import columns
from fuseline.engine.rewriting.tokens import Needs, Part
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.training.padding.attention import Form, form_of
from fuseline.passes.training.padding.region import TokenRegion
from fuseline.passes.training.padding.wanted import Wanted

__all__ = ["Mover"]

_ALL: np.ndarray[tuple[int], np.dtype[np.int64]] = np.zeros(0, np.int64)
"""Stands for all rows."""


class Mover:
    """Computes a region for the tokens that count, and lets its readers read that."""

    def __init__(self, model: Model, rewriter: Rewriter, region: TokenRegion, sizes: ir.Value) -> None:
        """`sizes` is a value whose first two axes are the grid's."""
        self._model = model
        self._rewriter = rewriter
        self._region = region
        self._rows: dict[tuple[ir.Value, Part], ir.Value] = {}
        self._first = list(region.nodes)[-1]
        self._op = rewriter.builder(self._first)
        self._wanted = Wanted(self._op, region, self._op.Shape(sizes, start=0, end=2))

    def move(self) -> None:
        self._put(self._op, self._first)
        for node in reversed(self._region.nodes):
            self._copy(node)
        for node in self._region.keys:
            self._attend_from_all(node)
        for node in self._region.selections:
            self._select(node)
        for node in self._region.shapes:
            self._size(node)
        self._rewriter.remove(*self._region.nodes)
        self._model.graph.sort()

    def _put(self, op: Builder, place: ir.Node) -> None:
        self._rewriter.insert(place, op.nodes, replaces=[place])
        op.nodes.clear()

    def _copy(self, node: ir.Node) -> None:
        """The node on the rows of its operands."""
        op = self._rewriter.builder(node)
        needs = self._region.nodes[node]
        form = form_of(node)
        if form is not None:
            made = self._attend(op, node, form, needs)
        elif node.op_type == "Reshape":
            made = self._reshape(op, node)
        elif node.op_type == "FusedRotary":
            parts = [self._part(op, v, needs[i], 2) for i, v in enumerate(node.inputs) if v is not None]
            operands = [op.Unsqueeze(part, [0]) for part in parts]
            made = op.Squeeze(op.copy(node, operands)[0], [0])
        else:
            made = op.copy(node, self._operands(op, node, needs), self._axis(node))[0]
        self._put(op, node)
        self._rows[node.outputs[0], Part.ROW] = made

    def _axis(self, node: ir.Node) -> dict[str, Attribute]:
        leading = self._region.grid.leading(node.outputs[0])
        axis = attribute(node, "axis", -1)
        return {"axis": axis - ((leading or 1) - 1)} if axis >= 0 and "axis" in node.attributes else {}

    def _operands(self, op: Builder, node: ir.Node, needs: Needs) -> list[ir.Value | None]:
        rank = len(dims_of(node.outputs[0]) or ())
        leading = self._region.grid.leading(node.outputs[0]) or 1
        operands = list(node.inputs)
        for place, value in enumerate(operands):
            if value is None:
                continue
            axes = leading - (
                rank - len(dims_of(value) or ())
            )  # of the rows that it has, or ones in their stead
            if place in needs:
                operands[place] = self._part(op, value, needs[place], axes)
            elif axes > 1 and _is_elementwise(node):
                operands[place] = op.Squeeze(value, list(range(axes - 1)))
        return operands

    def _part(self, op: Builder, value: ir.Value, part: Part, axes: int) -> ir.Value:
        """The rows of a value that the tokens need: computed as such, or taken out of it."""
        if (value, part) not in self._rows:
            leading = self._region.grid.leading(value) if part is Part.ROW else axes
            flat = value
            if leading != 1:
                flat = op.Reshape(value, [-1, *(columns(value, leading or 1) or ())])
            self._rows[value, part] = op.Gather(flat, self._wanted.part(part), axis=0)
            self._put(self._op, self._first)
        return self._rows[value, part]

    def _reshape(self, op: Builder, node: ir.Node) -> ir.Value:
        """It divides the rows among axes, which are one now, and perhaps what is in a row."""
        grid, source, result = self._region.grid, node.inputs[0], node.outputs[0]
        assert source is not None
        rows = self._part(op, source, Part.ROW, 1)
        width = columns(result, grid.leading(result) or 1)
        if columns(source, grid.leading(source) or 1) == width:
            return rows
        return op.Reshape(rows, [-1, *(width or ())])

    def _attend(self, op: Builder, node: ir.Node, form: Form, needs: Needs) -> ir.Value:
        inputs = list(node.inputs)
        if form.query_rows is not None:
            queries = inputs[form.queries]
            assert queries is not None
            inputs[form.queries] = self._part(op, queries, Part.ROW, 1)
            inputs[form.query_rows] = self._wanted.rows
            return op.copy(node, inputs)[0]
        for place in {form.queries, *form.keys}:
            value = inputs[place]
            assert value is not None
            if place in needs:
                inputs[place] = self._part(op, value, Part.ROW, 2)
            elif node.op_type == "FusedAttention":
                inputs[place] = op.Reshape(value, [-1, *(columns(value, 2) or ())])
        inputs += self._places(op, node, form, needs)
        made = op.node(
            form.over_rows,
            *inputs,
            _outputs=len(node.outputs),
            _domain=node.domain,
            **{name: a.value for name, a in node.attributes.items()},
        )
        return made[0]

    def _places(self, op: Builder, node: ir.Node, form: Form, needs: Needs) -> list[ir.Value]:
        """Which rows of which sizes the operands are."""
        shape, rows = self._wanted.sizes, self._wanted.rows
        length = op.Slice(shape, [1], [2], [0])
        if form.keys == (form.queries,):
            return [rows, op.Concat(shape, length, axis=0)]
        own = form.queries in needs, form.keys[0] in needs
        lengths = [
            length if mine else op.Shape(node.inputs[place], start=1, end=2)
            for mine, place in zip(own, (form.queries, form.keys[0]), strict=True)
        ]
        sizes = op.Concat(op.Slice(shape, [0], [1], [0]), *lengths, axis=0)
        return [*(rows if mine else op.constant(_ALL) for mine in own), sizes]

    def _attend_from_all(self, node: ir.Node) -> None:
        form = form_of(node)
        assert form is not None
        op = self._rewriter.builder(node)
        rows = self._attend(op, node, form, self._region.keys[node])
        y = op.Reshape(rows, op.Shape(node.inputs[form.queries]))
        self._rewriter.replace([node], op.nodes, [(node.outputs[0], y)])

    def _size(self, node: ir.Node) -> None:
        """The shape of a value of all tokens, which is no longer computed."""
        value = node.inputs[0]
        assert value is not None
        leading = self._region.grid.leading(value) or 1
        op = self._rewriter.builder(node)
        rows = self._wanted.sizes if leading == 2 else op.ReduceProd(self._wanted.sizes, keepdims=1)
        whole = op.Concat(rows, op.constant(columns(value, leading) or _ALL), axis=0)
        rank = len(dims_of(value) or ())
        first, last, _ = slice(attribute(node, "start", 0), attribute(node, "end", None)).indices(rank)
        made = op.Slice(whole, [first], [last], [0])
        self._rewriter.replace([node], op.nodes, [(node.outputs[0], made)])

    def _select(self, node: ir.Node) -> None:
        op = self._rewriter.builder(node)
        value = node.inputs[0]
        assert value is not None
        index = self._wanted.index(node)
        self._put(self._op, self._first)
        y = op.Gather(self._part(op, value, Part.ROW, 1), index, axis=0)
        # The model may declare what no rule knows: how many rows a slice takes of an axis of unknown length.
        op.declare(y, dims=dims_of(node.outputs[0]))
        self._rewriter.replace([node], op.nodes, [(node.outputs[0], y)])


def _is_elementwise(node: ir.Node) -> bool:
    operator = record(node)
    return operator is not None and operator.has(Trait.ELEMENTWISE)
