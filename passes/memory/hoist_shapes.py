"""The pass `hoist-shapes`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["HoistShapes"]


class HoistShapes(Pass):
    """large value … Shape(large value) → the shape is read right where the value is made

    A shape that is read late keeps its value alive until then, for eight bytes an axis. The gradient of a
    Reshape begins with one, so that every layer's activations wait for the whole backward half.
    """

    name = "hoist-shapes"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for graph in model.graphs():
            behind: dict[ir.Node, ir.Node] = {}  # what makes a value → the last reader of its shape in place
            previous: ir.Node | None = None  # of the nodes that stay where they are
            for node in list(graph):
                if not self._hoist(graph, node, previous, behind, rewriter):
                    previous = node
        return rewriter.changes

    def _hoist(
        self,
        graph: ir.Graph,
        node: ir.Node,
        previous: ir.Node | None,
        behind: dict[ir.Node, ir.Node],
        rewriter: Rewriter,
    ) -> bool:
        """Whether the node was moved."""
        source = node.inputs[0] if is_op(node, "Shape") or is_op(node, "Size") else None
        if source is None:
            return False
        producer = source.producer()
        if producer is None or producer.graph is not graph:
            rewriter.reject(node, f"{source.name} comes from outside and lives through the whole run")
            return False
        anchor = behind.get(producer, producer)
        moved = previous is not anchor and rewriter.permit(node, "read where the value is made")
        if moved:
            rewriter.move_behind(node, anchor)
        if moved or previous is anchor:
            behind[producer] = node
        return moved
