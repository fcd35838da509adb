"""The pass `eliminate-noop-cast`."""

from __future__ import annotations

from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["EliminateNoopCast"]


class EliminateNoopCast(Pass):
    """Cast(x) to the type of x, CastLike(x, y) of equal types → x"""

    name = "eliminate-noop-cast"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Cast", "CastLike"):
            source = node.inputs[0]
            if source is None or source.dtype is None or has_references(node):
                continue
            if node.op_type == "Cast":
                target = node.attributes.get_int("to", 0)
            else:
                like = node.inputs[1]
                target = like.dtype if like is not None and like.dtype is not None else 0
            if target == source.dtype:
                bypass(rewriter, node, source, f"already {source.dtype.name}")
        return rewriter.changes
