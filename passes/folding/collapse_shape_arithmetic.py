"""The pass `collapse-shape-arithmetic`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.analysis import Contents
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs, has_references, is_op
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import Dims, dims_of
from fuseline.engine.shapes.known import Known
from fuseline.engine.shapes.output_dims import output_dims

__all__ = ["CollapseShapeArithmetic"]

# Shape has start and end since this opset.
_PARTS_SINCE = 15


class CollapseShapeArithmetic(Pass):
    """Where(Equal(s, −1), 1, s) of s = Concat(Gather(Shape(y), 0), …) → Shape(x) of a graph input x

    An integer vector whose elements are all known dimensions is read from the graph's inputs, or taken from
    the first value that holds the same. Function bodies have no types, and are left alone.
    """

    name = "collapse-shape-arithmetic"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        in_functions, values = function_graphs(model), rewriter.analysis(Contents)
        for graph in list(model.graphs()):
            if graph not in in_functions:
                _Walk(model, rewriter, values, {}).over(graph)
        return rewriter.changes


@dataclass
class _Walk:
    """One walk over one graph: what vectors of dimensions it has computed so far."""

    model: Model
    rewriter: Rewriter
    values: Contents
    first: dict[tuple[Dims, int], ir.Value]

    def over(self, graph: ir.Graph) -> None:
        for node in list(graph):
            found = self._visit(node)
            value = node.outputs[0] if len(node.outputs) == 1 else None
            if found is None or value is None or not _is_symbolic(found) or value.dtype != ir.DataType.INT64:
                continue
            if not value.uses() and not value.is_graph_output():
                continue  # redirecting what nobody reads would change nothing
            key = (found.items, found.rank)
            if key not in self.first:
                self.first[key] = self._read_from_inputs(node, found) or value
            elif not value.is_graph_output():
                self._share(node, self.first[key], found)

    def _visit(self, node: ir.Node) -> Known | None:
        source = node.inputs[0] if is_op(node, "Shape") and not has_references(node) else None
        if source is not None and source.is_graph_output() and source.producer() is not None:
            # What an output is declared to be is the interface; its node may say more.
            shape = output_dims(self.values, source.producer())  # type: ignore[arg-type]
            if shape is not None:
                start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(shape))
                return self.values.learn(node.outputs[0], Known(shape[start:end]))
        return self.values.visit(node)

    def _share(self, node: ir.Node, first: ir.Value, found: Known) -> None:
        if self.rewriter.permit(node, f"{list(found.items)} is known from {first.name!r}"):
            self.rewriter.redirect(node.outputs[0], first)

    def _read_from_inputs(self, node: ir.Node, found: Known) -> ir.Value | None:
        """The vector as one Shape of an input, or as a Concat of fewer parts than it has now."""
        if found.rank != 1 or node.outputs[0].is_graph_output() or self._is_plain(node):
            return None
        parts = list(self._parts(found.items, self.values.opset(node)))
        if any(p is None for p in parts) or not parts:
            return None
        if len(parts) > 1 and (not is_op(node, "Concat") or len(parts) >= len(node.inputs)):
            return None
        if not self.rewriter.permit(node, f"{list(found.items)} is read from the inputs"):
            return None
        op = self.rewriter.builder(node)
        made = [self._part(op, p) for p in parts if p is not None]
        vector = op.Concat(*made, axis=0) if len(made) > 1 else made[0]
        self.values.learn(vector, found)
        self.rewriter.insert(node, op.nodes, replaces=[node])
        self.rewriter.redirect(node.outputs[0], vector)
        return vector

    def _is_plain(self, node: ir.Node) -> bool:
        """Whether the node is already a Shape of an input."""
        return is_op(node, "Shape") and node.inputs[0] in self.model.graph.inputs

    def _parts(self, items: Dims, opset: int) -> Iterator[tuple[ir.Value, int, int] | list[int] | None]:
        """Runs of numbers, and runs of dimensions of one input; None where there is no such input."""
        place = 0
        while place < len(items):
            end = place
            while end < len(items) and isinstance(items[end], int):
                end += 1
            if end > place:
                yield [int(i) for i in items[place:end]]  # type: ignore[arg-type]
                place = end
                continue
            run = max(self._runs(items[place:], opset), key=lambda r: r[2] - r[1], default=None)
            yield run
            place += run[2] - run[1] if run is not None else 1

    def _runs(self, items: Dims, opset: int) -> Iterator[tuple[ir.Value, int, int]]:
        """Where the dimensions of an input begin as the items do."""
        for value in self.model.graph.inputs:
            shape = dims_of(value) or ()
            for start in range(len(shape)):
                end = start
                while end < len(shape) and end - start < len(items) and shape[end] == items[end - start]:
                    end += 1
                whole = start == 0 and end == len(shape)
                if end > start and (opset >= _PARTS_SINCE or whole):
                    yield value, start, end

    def _part(self, op: Builder, part: tuple[ir.Value, int, int] | list[int]) -> ir.Value:
        if isinstance(part, list):
            return op.constant(part, "dims")
        source, start, end = part
        key = (tuple(dims_of(source) or ())[start:end], 1)
        if key in self.first:
            return self.first[key]
        whole = start == 0 and end == len(dims_of(source) or ())
        made = op.Shape(source) if whole else op.Shape(source, start=start, end=end)
        self.values.learn(made, Known(key[0]))
        self.first[key] = made
        return made


def _is_symbolic(found: Known) -> bool:
    return None not in found.items and any(isinstance(i, str) for i in found.items)
