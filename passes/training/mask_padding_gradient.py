"""The pass `mask-padding-gradient`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["MaskPaddingGradient", "padding_row"]


class MaskPaddingGradient(Pass):
    """GatherGrad(shape, ids, dy) → GatherGrad(shape, ids, dy · (ids ≠ padding)) for tables with a padding row

    Torch gives the padding row of an embedding no gradient from look-ups; the exporter notes these rows in
    the fact `padding_rows`. Native embeddings have the row as an attribute and are left alone.
    """

    name = "mask-padding-gradient"
    phase = "post-gradient"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in list(model.graph):
            if node.op_type != "GatherGrad" or node.domain != "com.microsoft":
                continue
            row = padding_row(model, _table(node))
            done = node.metadata_props.get(_MARK)
            if row is not None and not done and rewriter.permit(node, self.summary()):
                _mask(rewriter, node, row)
        return rewriter.changes


_MARK = "fuseline.padding"


def padding_row(model: Model, table: ir.Value | None) -> int | None:
    """The row of an embedding table that look-ups do not train, or None."""
    rows = model.facts.training.padding_rows
    names = [p.name for p in model.parameters.of_value(table.name)] if table is not None else []
    found = [rows[name] for name in names if name in rows]
    return int(found[0]) if found else None


def _table(node: ir.Node) -> ir.Value | None:
    """The table that was looked up: the gradient reads its shape."""
    shape = node.inputs[0].producer() if node.inputs[0] is not None else None
    return shape.inputs[0] if shape is not None and shape.op_type == "Shape" else None


def _mask(rewriter: Rewriter, node: ir.Node, row: int) -> None:
    ids, gradient = node.inputs[1], node.inputs[2]
    assert gradient is not None
    op = rewriter.builder(node)
    mask = op.Cast(op.Not(op.Equal(ids, row)), to=ir.DataType.FLOAT.value)
    masked = op.Mul(gradient, op.Unsqueeze(mask, [-1]))
    rewriter.insert(node, op.nodes)
    node.replace_input_with(2, masked)
    node.metadata_props[_MARK] = str(row)
