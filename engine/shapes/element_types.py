"""The element type of a value where the graph does not say it, as it follows from what it is made of."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import opset_at
from fuseline.engine.operators.signatures import Signature, signature
from fuseline.engine.shapes.inference import infer
from fuseline.engine.shapes.values import ShapeValues

__all__ = ["element_type"]


def element_type(model: Model, value: ir.Value | None) -> ir.DataType | None:
    """The declared one, or else that of the inputs it follows from; None where nothing tells."""
    seen: set[ir.Value] = set()
    while value is not None and value.dtype is None and value not in seen:
        seen.add(value)
        node = value.producer()
        if node is None:
            return _given(model, value)
        made = infer(node, ShapeValues(model)) or ()
        index = value.index() or 0
        if index < len(made) and made[index][0] is not None:
            return made[index][0]
        value = _alike(model, node, index)
    return None if value is None else value.dtype


def _alike(model: Model, node: ir.Node, index: int) -> ir.Value | None:
    """An input that has the type of an output, whatever that is."""
    found = _signature(model, node)
    port = found.output(index) if found is not None else None
    if found is None or port is None:
        return None
    for position, value in enumerate(node.inputs):
        beside = found.input(position)
        if value is not None and beside is not None and beside.type == port.type:
            return value
    return None


def _signature(model: Model, node: ir.Node) -> Signature | None:
    version = opset_at(model, node.graph, node.domain) if isinstance(node.graph, ir.Graph) else 0
    return signature(node.domain, node.op_type, version)


def _given(model: Model, value: ir.Value) -> ir.DataType | None:
    """What every call of a function gives to one of its inputs, if that is the same."""
    for function in model.ir.functions.values():
        for index, taken in enumerate(function.inputs):
            if taken is value:
                calls = [n for n in model.nodes() if n.op_identifier() == function.identifier()]
                types = {element_type(model, n.inputs[index]) for n in calls if index < len(n.inputs)}
                return types.pop() if len(types) == 1 else None
    return None
