"""Putting a computed constant in the place of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["add_initializer", "materialize"]

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
            value.replace_all_uses_with(add_initializer(graph, name, array))
    rewriter.remove(node)


def add_initializer(graph: ir.Graph | ir.Function, name: str, array: Array) -> ir.Value:
    assert isinstance(graph, ir.Graph)
    tensor = ir.Tensor(array, name=name)
    value = ir.Value(
        name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape)
    )
    graph.register_initializer(value)
    return value


def new_constant(rewriter: Rewriter, anchor: ir.Node, role: str, array: Array, *, as_node: bool) -> ir.Value:
    """A new constant for `anchor` to read: an initializer, or a node before it in a function body."""
    graph = anchor.graph
    assert graph is not None
    name = rewriter.fresh_name(graph, f"{anchor.name or anchor.op_type}_{role}")
    if not as_node:
        return add_initializer(graph, name, array)
    constant = ir.node("Constant", [], {"value": ir.Tensor(array)})
    constant.outputs[0].name = name
    rewriter.insert(anchor, [constant], replaces=(anchor,))
    return constant.outputs[0]
