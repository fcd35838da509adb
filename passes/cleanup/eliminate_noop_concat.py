"""The pass `eliminate-noop-concat`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of

__all__ = ["EliminateNoopConcat"]


class EliminateNoopConcat(Pass):
    """Concat(x) → x, and Concat(x, nothing, y) → Concat(x, y)"""

    name = "eliminate-noop-concat"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Concat"):
            if has_references(node):
                continue
            axis = node.attributes.get_int("axis", 0)
            filled = [v for v in node.inputs if v is not None and not _is_empty(v, axis)]
            if len(filled) == 1:
                bypass(rewriter, node, filled[0], "one part")
            elif filled and len(filled) < len(node.inputs) and rewriter.permit(node, "empty parts"):
                with rewriter.building(node) as op:
                    [joined] = op.copy(node, filled)
                    rewriter.replace([node], op.nodes, [(node.outputs[0], joined)])
        return rewriter.changes


def _is_empty(value: ir.Value, axis: int) -> bool:
    dims = dims_of(value)
    return dims is not None and -len(dims) <= axis < len(dims) and dims[axis] == 0
