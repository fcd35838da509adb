"""The pass `native-embedding`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite
from fuseline.passes.training.mask_padding_gradient import padding_row

__all__ = ["NativeEmbedding"]


class NativeEmbedding(LocalRewrite):
    """Gather(trainable table, ids) → fuseline.FusedEmbedding, whose gradient sums rows by index

    A row that torch does not train (`padding_idx`, in the fact `padding_rows`) gets no gradient here either.
    """

    name = "native-embedding"
    operators = ("Gather",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        table, ids = node.inputs
        assert table is not None
        assert ids is not None
        if not model.parameters.is_trainable(table.name):
            return False
        if attribute(node, "axis", 0) != 0 or rank_of(table) != 2:
            return "it does not take whole rows of a table"
        if table.dtype != ir.DataType.FLOAT or ids.dtype != ir.DataType.INT64:
            return f"its types are {table.dtype} and {ids.dtype}, not float32 and int64"
        return True

    def build(self, op: Builder, node: ir.Node) -> Sequence[ir.Value | None]:
        row = padding_row(op.model, node.inputs[0])
        y, _ = op.FusedEmbedding(
            *node.inputs,
            _outputs=2,
            _domain="fuseline",
            padding_idx=-1 if row is None else row,
        )
        return [y]
