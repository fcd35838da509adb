"""Putting a computed constant in the place of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["materialize"]

Array = npt.NDArray[Any]


def materialize(rewriter: Rewriter, node: ir.Node, outputs: Sequence[Array], *, as_nodes: bool) -> None:
    """Replace the node by its outputs' content, under their names.

    Function bodies cannot hold initializers (`as_nodes`), and a graph output needs a producer: these get
    Constant nodes.
    """
    graph = node.graph
    assert graph is not None
    for value, array in zip(tuple(node.outputs), outputs, strict=True):
        if as_nodes or value.is_graph_output():
            constant = ir.node("Constant", [], {"value": ir.Tensor(array)})
            constant.outputs[0].type, constant.outputs[0].shape = value.type, ir.Shape(array.shape)
            if not value.is_graph_output():
                constant.outputs[0].name, value.name = value.name, f"{value.name}_folded"
            rewriter.insert(node, [constant], replaces=(node,))
            rewriter.redirect(value, constant.outputs[0])
        elif value.uses():
            name, value.name = value.name, f"{value.name}_folded"
            assert name is not None
            value.replace_all_uses_with(_add_initializer(graph, name, array))
    rewriter.remove(node)


def _add_initializer(graph: ir.Graph | ir.Function, name: str, array: Array) -> ir.Value:
    assert isinstance(graph, ir.Graph)
    tensor = ir.Tensor(array, name=name)
    value = ir.Value(
        name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape)
    )
    graph.register_initializer(value)
    return value
