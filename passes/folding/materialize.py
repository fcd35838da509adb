"""Putting a computed constant in the place of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.initializers import add_initializer
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["materialize"]

Array = npt.NDArray[Any]


def materialize(rewriter: Rewriter, node: ir.Node, outputs: Sequence[Array], *, as_nodes: bool) -> None:
    """Replace the node by its outputs' content, under their names.

    Function bodies cannot hold initializers (`as_nodes`), and a graph output needs a producer: these get
    Constant nodes.
    """
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    for value, array in zip(tuple(node.outputs), outputs, strict=True):
        name = str(value.name)
        if as_nodes or value.is_graph_output():
            op = rewriter.builder(node)
            made = op.Constant(value=ir.Tensor(array))
            rewriter.insert(node, op.nodes, replaces=(node,))
            if not value.is_graph_output():
                made.name, value.name = name, f"{name}_folded"
            rewriter.redirect(value, made)
        elif value.uses():
            value.name = f"{name}_folded"
            value.replace_all_uses_with(add_initializer(graph, name, array))
    rewriter.remove(node)
