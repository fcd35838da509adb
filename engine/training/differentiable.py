"""Which operators have a gradient, and which nodes need one."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.operators import record
from fuseline.engine.training.edges import differentiable_inputs, is_float
from fuseline.engine.training.gradients import loss_name

__all__ = [
    "has_gradient",
    "nodes_on_gradient_path",
    "qualified",
]


def qualified(node: ir.Node) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def has_gradient(node: ir.Node) -> bool:
    operator = record(node)
    return operator is not None and operator.gradient.exists


def nodes_on_gradient_path(model: Model) -> list[ir.Node]:
    """The nodes between a trainable parameter and the loss through which a gradient has to flow, in order."""
    loss = next(o for o in model.graph.outputs if o.name == loss_name(model))
    needed = _backward(loss)
    trained = {v for n in model.parameters.trainable_values() if (v := model.graph.initializers.get(n))}
    trained |= {v for v in model.graph.inputs if model.parameters.is_trainable(v.name)}
    path = []
    for node in model.graph:
        if node in needed and any(v in trained for v in differentiable_inputs(node)):
            path.append(node)
            trained.update(v for v in node.outputs if is_float(v))
    return path


def _backward(loss: ir.Value) -> set[ir.Node]:
    seen: set[ir.Node] = set()
    pending = [loss]
    while pending:
        producer = pending.pop().producer()
        if producer is None or producer in seen:
            continue
        seen.add(producer)
        pending.extend(differentiable_inputs(producer))
    return seen
