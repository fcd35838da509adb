"""The shape a node gives its output, computed from its inputs."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.nodes import has_references
from fuseline.engine.operators import record
from fuseline.engine.shapes.dims import Dims, dims_of
from fuseline.engine.shapes.site import Site
from fuseline.engine.shapes.values import ShapeValues

__all__ = ["output_dims"]


def output_dims(values: ShapeValues, node: ir.Node) -> Dims | None:
    """The first output's shape as it follows from the inputs, or else as it was inferred or declared before.

    The declared shape of a graph output is never used: it is the interface, not a statement about the node.
    """
    output = node.outputs[0]
    declared = dims_of(output) if not output.is_graph_output() else None
    operator = record(node)
    if operator is None or operator.shape is None or has_references(node):
        return declared
    made = operator.shape(Site(node, values))
    found = made[0][1] if made else None
    return found if found is not None and None not in found else declared
