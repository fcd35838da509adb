"""Element type and shape of what a node makes: by a rule of ours, or else by ONNX's own inference."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.constants import tensor_of
from fuseline.engine.nodes import has_references, is_op, is_standard, subgraphs
from fuseline.engine.operators import record
from fuseline.engine.shapes.dims import dims_of
from fuseline.engine.shapes.schema import infer_from_schema
from fuseline.engine.shapes.site import Site, Typing
from fuseline.engine.shapes.values import ShapeValues

__all__ = ["infer"]

# Before opset 7 elementwise operators broadcast by attribute.
_OLDEST_FOR_RULES = 7


def infer(node: ir.Node, values: ShapeValues) -> Sequence[Typing] | None:
    """One (dtype, dims) per output as they follow from the inputs; None where nothing is known.

    `values` has visited the nodes before this one, and the subgraphs' values are typed already.
    """
    if node.op_type == "Constant" or has_references(node):
        return _constant(node)
    if is_op(node, "If"):
        return _branches(node)
    if any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
        return None
    operator, opset = record(node), values.opset(node)
    if operator is not None and operator.shape is not None and opset >= _OLDEST_FOR_RULES:
        try:
            return operator.shape(Site(node, values))
        except (ArithmeticError, IndexError, TypeError, ValueError):
            if not is_standard(node):
                raise  # a mistake in the rule of a declared operator
            # Operands that do not fit together: such a node fails where it is run, and perhaps it never is.
            return None
    return infer_from_schema(values.model, node, opset) if is_standard(node) else None


def _constant(node: ir.Node) -> list[Typing] | None:
    if not is_op(node, "Constant") or has_references(node):
        return None
    tensor = tensor_of(node.outputs[0])
    return [(tensor.dtype, tuple(tensor.shape.numpy()))] if tensor is not None else None


def _branches(node: ir.Node) -> list[Typing]:
    branches = [graph.outputs for graph in subgraphs(node)]
    return [_common(values) for values in zip(*branches, strict=False)]


def _common(values: Sequence[ir.Value]) -> Typing:
    """What the branches agree on."""
    dtypes = {v.dtype for v in values if not isinstance(v.type, (ir.SequenceType, ir.OptionalType))}
    shapes = [dims_of(v) for v in values]
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    first = shapes[0]
    if first is None or any(s is None or len(s) != len(first) for s in shapes):
        return dtype, None
    columns = zip(*[s for s in shapes if s is not None], strict=True)
    return dtype, tuple(c[0] if len(set(c)) == 1 else None for c in columns)
