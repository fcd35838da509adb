"""The pass `merge-transposes`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, is_op, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of

__all__ = ["MergeTransposes"]


class MergeTransposes(Pass):
    """Transpose(Transpose(x)) → Transpose(x), or x if the two cancel"""

    name = "merge-transposes"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Transpose"):
            inner = node.inputs[0].producer() if node.inputs[0] is not None else None
            if inner is None or not is_op(inner, "Transpose"):
                continue
            source, first, second = inner.inputs[0], _perm(inner), _perm(node)
            if source is None or first is None or second is None or len(first) != len(second):
                continue
            perm = [first[i] for i in second]
            if perm == sorted(perm):
                bypass(rewriter, node, source, "transposes cancel")
            elif rewriter.permit(node, "two transposes"):
                with rewriter.building(node) as op:
                    merged = op.Transpose(source, perm=perm)
                    rewriter.replace([inner, node], op.nodes, [(node.outputs[0], merged)])
        return rewriter.changes


def _perm(node: ir.Node) -> Sequence[int] | None:
    if has_references(node):
        return None
    given = node.attributes.get_ints("perm")
    if given is not None:
        return given
    dims = dims_of(node.inputs[0])
    return range(len(dims) - 1, -1, -1) if dims is not None else None
