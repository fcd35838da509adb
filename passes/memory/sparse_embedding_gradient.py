"""The pass `sparse-embedding-gradient`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_op
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import Dims, dims_of

__all__ = ["SparseEmbeddingGradient"]

_FIRST_TENSOR = 7
"""Behind rates, hyperparameters, counter, norm, scale and switch come parameters, gradients and moments."""


class SparseEmbeddingGradient(Pass):
    """FusedEmbeddingGrad of a table → the rows of a batch, added to another gradient or given to AdamW

    A table whose transpose makes the scores has two gradients: the rows are added to the other one in place.
    A table that is updated on its own (`release-early`) needs no gradient as large as itself: AdamW decays
    the rows that are not touched, as it does with a gradient of zero, so weights are the same to the bit.
    A table read twice and for the scores has a sum of three: the rows are then added one after the other.
    """

    name = "sparse-embedding-gradient"
    phase = "post-gradient"
    requires = (Property.DIFFERENTIATED,)
    minimum_rows: int = 1024
    """A smaller table is hardly larger than the rows of a batch."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        self._add_rows_last(model, rewriter)
        for node in [n for n in model.graph if n.op_type == "FusedEmbeddingGrad" and n.domain == "fuseline"]:
            reader = self._reader(node)
            if isinstance(reader, str):
                rewriter.reject(node, reader)
            elif rewriter.permit(node, "rows are " + ("added" if is_op(reader, "Add") else "updated")):
                _exchange(rewriter, node, reader)
        return rewriter.changes

    def _add_rows_last(self, model: Model, rewriter: Rewriter) -> None:
        """(rows + rows) + other → (rows + other) + rows: else the sum of both is as large as the table."""
        place = {node: index for index, node in enumerate(model.graph)}
        for first in [n for n in model.graph if is_op(n, "Add") and all(map(_is_of_rows, n.inputs))]:
            uses = list(first.outputs[0].uses())
            second = uses[0].node if len(uses) == 1 else None
            if second is None or first.outputs[0].is_graph_output() or not is_op(second, "Add"):
                continue
            other, last = second.inputs[1 - uses[0].idx], first.inputs[1]
            made = other.producer() if other is not None else None
            tables = [dims_of(v) for v in (first.inputs[0], last, other) if v is not None]
            if made is None or _is_of_rows(other) or place.get(made, len(place)) > place[first]:
                continue
            if tables[0] is None or tables != [tables[0]] * 3 or not self._is_large(tables[0]):
                continue
            if rewriter.permit(first, "rows come last"):
                first.replace_input_with(1, other)
                second.replace_input_with(1 - uses[0].idx, last)

    def _is_large(self, table: Dims) -> bool:
        return isinstance(table[0], int) and table[0] >= self.minimum_rows

    def _reader(self, node: ir.Node) -> ir.Node | str:
        """The node that takes rows in place of a table; otherwise why there is none."""
        gradient, table = node.outputs[0], dims_of(node.outputs[0])
        uses = list(gradient.uses())
        if table is None or not self._is_large(table):
            return (
                f"its table has {table[0] if table else 'an unknown number of'} rows, not {self.minimum_rows}"
            )
        if gradient.is_graph_output() or len(uses) != 1:
            return "its gradient is returned, or read more than once"
        reader = uses[0].node
        if is_op(reader, "Add"):
            same = dims_of(reader.inputs[1 - uses[0].idx]) == table
            return reader if same else "what is added to it is not of its shape"
        if reader.op_type != "FusedAdamW" or reader.domain != "fuseline":
            return f"{reader.op_type} needs all of it"
        if len(reader.inputs) != _FIRST_TENSOR + 4 or uses[0].idx != _FIRST_TENSOR + 1:
            return "its table is updated along with others"
        special = attribute(reader, "zero_gradients", 0) or attribute(reader, "skip_nonfinite", 0)
        return "the update looks at all gradients first" if special else reader


def _is_of_rows(value: ir.Value | None) -> bool:
    """Whether a value is the gradient of a table, read once."""
    node = value.producer() if value is not None else None
    found = node is not None and node.op_type == "FusedEmbeddingGrad" and node.domain == "fuseline"
    return found and value is not None and len(value.uses()) == 1 and not value.is_graph_output()


def _exchange(rewriter: Rewriter, node: ir.Node, reader: ir.Node) -> None:
    op = rewriter.builder(reader)
    dy, ids, _, state = node.inputs
    if is_op(reader, "Add"):
        other = next(v for v in reader.inputs if v is not node.outputs[0])
        made: Sequence[ir.Value] = [op.FusedEmbeddingGradAdd(other, dy, ids, state, _domain="fuseline")]
    else:
        settings, (table, _, *moments) = reader.inputs[:_FIRST_TENSOR], reader.inputs[_FIRST_TENSOR:]
        kept = {
            name: reader.attributes[name].value for name in ("advance", "first") if name in reader.attributes
        }
        made = op.FusedAdamWRows(
            *settings, table, dy, ids, state, *moments, _outputs=2, _domain="fuseline", **kept
        )
    values = list(zip(reader.outputs, made, strict=False))
    rewriter.insert(reader, op.nodes, replaces=[node, reader])
    for old, new in values:
        rewriter.redirect(old, new)
    rewriter.remove(reader, node)
