"""The pass `remove-identity-transposes`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_standard
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["RemoveIdentityTransposes"]


class RemoveIdentityTransposes(Pass):
    """Transpose with perm 0, 1, 2, … → nothing

    ONNX Runtime takes such a Transpose for a real one when it merges it with a matrix product.
    """

    name = "remove-identity-transposes"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in list(model.nodes()):
            if node.op_type != "Transpose" or not is_standard(node) or not _is_identity(node):
                continue
            if rewriter.permit(node, "does not move anything"):
                x = node.inputs[0]
                assert x is not None
                rewriter.redirect(node.outputs[0], x)
                rewriter.remove(node)
        return rewriter.changes


def _is_identity(node: ir.Node) -> bool:
    perm = list(attribute(node, "perm", ()))
    return bool(perm) and perm == list(range(len(perm)))
