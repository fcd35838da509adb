"""Which operators have a gradient, and along which edges a gradient flows."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.operators import Trait, record
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
        if node in needed and any(v in trained for v in _differentiable_inputs(node)):
            path.append(node)
            trained.update(v for v in node.outputs if _is_float(v))
    return path


def _backward(loss: ir.Value) -> set[ir.Node]:
    seen: set[ir.Node] = set()
    pending = [loss]
    while pending:
        producer = pending.pop().producer()
        if producer is None or producer in seen:
            continue
        seen.add(producer)
        pending.extend(_differentiable_inputs(producer))
    return seen


def _differentiable_inputs(node: ir.Node) -> Iterator[ir.Value]:
    operator = record(node)
    if operator is not None and operator.has(Trait.DISCRETE):
        return
    stopped = operator.indices if operator is not None else frozenset()
    for index, value in enumerate(node.inputs):
        if value is not None and index not in stopped and _is_float(value):
            yield value


def _is_float(value: ir.Value) -> bool:
    """Whether it may carry a gradient; an unknown type may."""
    return value.dtype is None or value.dtype.is_floating_point()
