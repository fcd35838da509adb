"""The pass `canonicalize-transpose`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.folding.reshape_target import reshape_target

__all__ = ["CanonicalizeTranspose", "moves_ones_alone"]


class CanonicalizeTranspose(Pass):
    """Transpose(x) that only moves dimensions of size 1 → Reshape(x)

    No element moves, so it is a Reshape, which costs nothing and merges with its neighbours.
    """

    name = "canonicalize-transpose"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Transpose"):
            target = _target(node)
            if target is None or not rewriter.permit(node, "only dimensions of size 1 move"):
                continue
            with rewriter.building(node) as op:
                made = op.Reshape(node.inputs[0], target)
                rewriter.replace([node], op.nodes, [(node.outputs[0], made)])
        return rewriter.changes


def moves_ones_alone(node: ir.Node) -> bool:
    """A Transpose that changes the places of dimensions of size 1 and of no others: no element moves."""
    dims, perm = dims_of(node.inputs[0]), _perm(node)
    if dims is None or perm is None:
        return False
    moved = [i for i in perm if dims[i] != 1]
    return moved == sorted(moved) and perm != sorted(perm)


def _target(node: ir.Node) -> list[int] | None:
    dims, perm = dims_of(node.inputs[0]), _perm(node)
    if dims is None or perm is None or not moves_ones_alone(node):
        return None
    return reshape_target(dims, tuple(dims[i] for i in perm))


def _perm(node: ir.Node) -> list[int] | None:
    dims = dims_of(node.inputs[0])
    if dims is None or has_references(node):
        return None
    return list(node.attributes.get_ints("perm") or range(len(dims) - 1, -1, -1))
