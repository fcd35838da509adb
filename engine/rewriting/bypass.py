"""Taking a node out of the way: its users read what it would have handed on."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["bypass"]


def bypass(rewriter: Rewriter, node: ir.Node, source: ir.Value, note: str) -> bool:
    """Let the users of the node's first output read `source`; the node goes unless it must name an output."""
    old = node.outputs[0]
    if old.is_graph_output() and not _can_take_name(source, old):
        return _bypass_inside(rewriter, node, source, note)
    if not rewriter.permit(node, note):
        return False
    rewriter.redirect(old, source)
    rewriter.remove(node)
    return True


def _can_take_name(source: ir.Value, output: ir.Value) -> bool:
    return source.producer() is not None and not source.is_graph_output() and source.graph is output.graph


def _bypass_inside(rewriter: Rewriter, node: ir.Node, source: ir.Value, note: str) -> bool:
    """The node stays to give the graph output its name; everyone else reads `source`."""
    old = node.outputs[0]
    if not old.uses() or not rewriter.permit(node, note):
        return False
    for user, index in tuple(old.uses()):
        user.replace_input_with(index, source)
    return True
