"""Along which edges of a graph a gradient flows."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from fuseline.engine.nodes import is_op
from fuseline.engine.operators import Trait, record

__all__ = ["differentiable_inputs", "is_float"]


def differentiable_inputs(node: ir.Node) -> Iterator[ir.Value]:
    """The inputs that a gradient of the node's outputs reaches."""
    operator = record(node)
    if (operator is not None and operator.has(Trait.DISCRETE)) or _makes_no_floats(node):
        return
    stopped = operator.indices if operator is not None else frozenset()
    for index, value in enumerate(node.inputs):
        if value is not None and index not in stopped and is_float(value):
            yield value


def _makes_no_floats(node: ir.Node) -> bool:
    if is_op(node, "Cast"):
        return not ir.DataType(node.attributes.get_int("to", ir.DataType.FLOAT)).is_floating_point()
    return not any(is_float(value) for value in node.outputs)


def is_float(value: ir.Value) -> bool:
    """Whether it may carry a gradient; an unknown type may."""
    return value.dtype is None or value.dtype.is_floating_point()
