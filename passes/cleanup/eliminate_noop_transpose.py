"""The pass `eliminate-noop-transpose`."""

from __future__ import annotations

from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of

__all__ = ["EliminateNoopTranspose"]


class EliminateNoopTranspose(Pass):
    """Transpose<perm = 0, 1, 2, …>(x) → x"""

    name = "eliminate-noop-transpose"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Transpose"):
            source, perm = node.inputs[0], node.attributes.get("perm")
            if source is None or has_references(node):
                continue
            dims = dims_of(source)
            vector = dims is not None and len(dims) < 2
            if vector or (perm is not None and list(perm.as_ints()) == sorted(perm.as_ints())):
                bypass(rewriter, node, source, "order stays the same")
        return rewriter.changes
