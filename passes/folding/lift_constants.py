"""The pass `lift-constants`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.constants import tensor_of
from fuseline.engine.initializers import add_initializer
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs, has_references, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["LiftConstants"]


class LiftConstants(Pass):
    """Constant() → an initializer of the same name

    Constants stay nodes in function bodies, which have no initializers, and where they are graph outputs.
    """

    name = "lift-constants"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        in_functions = function_graphs(model)
        for node in nodes_of(model, "Constant"):
            value = node.outputs[0]
            if node.graph in in_functions or value.is_graph_output() or has_references(node):
                continue
            tensor = tensor_of(value)
            if tensor is not None and rewriter.permit(node, "constant node"):
                _lift(rewriter, node, tensor)
        return rewriter.changes


def _lift(rewriter: Rewriter, node: ir.Node, tensor: ir.TensorProtocol) -> None:
    graph, old = node.graph, node.outputs[0]
    assert isinstance(graph, ir.Graph)
    assert old.name is not None
    name, old.name = old.name, f"{old.name}_lifted"
    old.replace_all_uses_with(add_initializer(graph, name, tensor))
    rewriter.remove(node)
