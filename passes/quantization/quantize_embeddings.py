"""The pass `quantize-embeddings`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import is_constant, tensor_of
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, function_graphs, has_references, opset_of, rank_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.quantization.grid import Grid, quantize_weight, swallowed, unfit
from fuseline.engine.quantization.products import excluded_by, operator_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["QuantizeEmbeddings"]

_EMBED = "com.microsoft::EmbedLayerNormalization"


class QuantizeEmbeddings(Pass):
    """Gather(table, ids) → DequantizeLinear(Gather(int8 table, ids)); EmbedLayerNormalization likewise

    Each column of a table has its own scale: some columns are much larger than the others, and one scale for
    all would drown the rest.
    """

    name = "quantize-embeddings"
    phase = "inference"
    exclude: tuple[str, ...] = ()
    """Nodes that stay in float, by name or pattern, or by their torch modules'."""
    smallest: int = 2048
    """Tables with fewer elements stay in float."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        functions = function_graphs(model)
        for node in list(model.nodes()):
            if operator_of(node) not in ("Gather", _EMBED):
                continue
            reason = "it stands in a function" if node.graph in functions else self._refusal(model, node)
            if reason is not None:
                rewriter.reject(node, reason)
            elif rewriter.permit(node, self.summary()):
                self._write(model, rewriter, node)
        return rewriter.changes

    def _refusal(self, model: Model, node: ir.Node) -> str | None:
        pattern = excluded_by(node, self.exclude)
        if pattern is not None:
            return f"{pattern!r} is excluded"
        if has_references(node):
            return "its attributes are parameters of a function"
        if opset_of(model, node) < 13:
            return f"opset {opset_of(model, node)} has no scale per column"
        if operator_of(node) == _EMBED:
            return self._refuse_embed(model, node)
        if attribute(node, "axis", 0) != 0:
            return f"it gathers along axis {attribute(node, 'axis', 0)}, not rows"
        return self._refuse_table(model, node.inputs[0])

    def _refuse_table(self, model: Model, table: ir.Value | None) -> str | None:
        if table is None or not is_constant(model, table):
            return f"{table.name if table else 'the table'!r} is not a constant table"
        if table.dtype is not ir.DataType.FLOAT:
            return f"{table.name!r} is {table.dtype or 'of unknown type'}, not FLOAT"
        if rank_of(table) != 2:
            return f"{table.name!r} has {rank_of(table)} axes, not 2"
        tensor = tensor_of(table)
        size = tensor.size if tensor is not None else 0
        if tensor is None or size < self.smallest:
            return f"the table has {size} elements, fewer than {self.smallest}"
        rows = tensor.numpy()
        reason = unfit(rows) or swallowed(rows, Grid())
        return None if reason is None else f"the table {table.name!r} {reason}"

    def _refuse_embed(self, model: Model, node: ir.Node) -> str | None:
        inputs = [*node.inputs, *[None] * 9][:9]
        if inputs[7] is not None or any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
            return "it also counts the mask or gives the sum"
        if inputs[8] is None:
            return "its positions are implied"
        for table in (inputs[2], inputs[3]):
            reason = self._refuse_table(model, table)
            if reason is not None:
                return reason
        if inputs[4] is not None and not is_constant(model, inputs[4]):
            return f"{inputs[4].name!r} is not a constant table"
        return None

    def _write(self, model: Model, rewriter: Rewriter, node: ir.Node) -> None:
        graph = node.graph
        assert graph is not None
        op = Builder(rewriter, node)
        made = (
            self._embed(op, node)
            if operator_of(node) == _EMBED
            else _rows(op, node.inputs[0], node.inputs[1])
        )
        rewriter.replace([node], op.nodes, [(node.outputs[0], made)])

    def _embed(self, op: Builder, node: ir.Node) -> Any:
        ids, segments, words, places, types, scale, bias, _, positions = [*node.inputs, *[None] * 9][:9]
        total = op.Add(_rows(op, words, ids), _rows(op, places, positions))
        if types is not None:
            small = types.const_value is not None and types.const_value.size < self.smallest
            total = op.Add(total, op.Gather(types, segments) if small else _rows(op, types, segments))
        epsilon = attribute(node, "epsilon", 1e-12)
        return op.LayerNormalization(total, scale, bias, axis=-1, epsilon=epsilon)


def _rows(op: Builder, table: ir.Value | None, ids: ir.Value | None) -> Any:
    assert table is not None
    tensor = tensor_of(table)
    assert tensor is not None
    quantized = quantize_weight(np.asarray(tensor.numpy(), np.float32), Grid(), axis=1)
    rows = op.Gather(op.constant(quantized.values, "table"), ids)
    return op.DequantizeLinear(rows, op.constant(quantized.scale, "scale"), axis=-1)
