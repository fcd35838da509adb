"""Cuts a differentiated graph in two: forward up to the outputs, backward from their gradients on.

What the backward part reads of the forward part becomes an output of one and an input of the other, so that
between the two a loss can be computed by anybody.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from fuseline.engine import runtime
from fuseline.engine.analysis import ancestors
from fuseline.engine.model import Model
from fuseline.engine.nodes import read_by
from fuseline.tools.trainer.variants import OBJECTIVE, OWN_LOSS, output_gradient

__all__ = ["cut"]


def cut(model: Model) -> tuple[Model, Model]:
    """(forward, backward) of a model made by `with_output_gradients` and differentiated."""
    forward, backward = model.clone(), model.clone()
    graph = model.graph
    seeds = {v.name for v in graph.inputs}
    outputs = [v for v in graph.outputs if output_gradient(v.name or "") in seeds or v.name == OWN_LOSS]
    updates = [v for v in graph.outputs if v.name in model.facts.training.updates]
    gradients = [v for v in graph.outputs if v not in outputs and v not in updates and v.name != OBJECTIVE]
    first = _makers([*outputs, *updates])
    second = _makers(gradients) - first
    second |= {n for n in _makers(gradients) if n.op_type == "Constant"}
    crossing = [v.name for v in _crossing(first, second) if v.name]
    _keep_forward(forward, _names(first), _names([*outputs, *updates]), crossing)
    # Gradient nodes carry no types; ONNX Runtime infers those of the forward part.
    types = {o.name: _TYPES[o.type] for o in runtime.session(forward).get_outputs()}
    _keep_backward(backward, _names(second), _names(gradients), {name: types[name] for name in crossing})
    return forward, backward


_TYPES = {
    "tensor(float)": ir.DataType.FLOAT,
    "tensor(double)": ir.DataType.DOUBLE,
    "tensor(float16)": ir.DataType.FLOAT16,
    "tensor(bfloat16)": ir.DataType.BFLOAT16,
    "tensor(int64)": ir.DataType.INT64,
    "tensor(int32)": ir.DataType.INT32,
    "tensor(uint8)": ir.DataType.UINT8,
    "tensor(bool)": ir.DataType.BOOL,
}


def _makers(values: Iterable[ir.Value]) -> set[ir.Node]:
    """The nodes that the values are computed by."""
    return {node for value in ancestors(values) if (node := value.producer()) is not None}


def _crossing(first: set[ir.Node], second: set[ir.Node]) -> list[ir.Value]:
    found: dict[ir.Value, None] = {}
    for node in second:
        for value in read_by(node):
            producer = value.producer()
            if producer in first and producer not in second:
                found[value] = None
    return sorted(found, key=lambda v: v.name or "")


def _names(items: Iterable[ir.Node] | Iterable[ir.Value]) -> set[str]:
    return {item.name for item in items if item.name}


def _keep_forward(model: Model, nodes: set[str], outputs: set[str], crossing: list[str]) -> None:
    graph = model.graph
    values = {v.name: v for n in graph for v in n.outputs}
    kept = [v for v in graph.outputs if v.name in outputs]
    graph.outputs.clear()
    graph.outputs.extend([*kept, *(values[name] for name in crossing if name not in outputs)])
    _drop(graph, nodes)
    _drop_unused_inputs(graph)


def _keep_backward(
    model: Model, nodes: set[str], gradients: set[str], crossing: dict[str, ir.DataType]
) -> None:
    graph = model.graph
    values = {v.name: v for n in graph for v in n.outputs}
    kept = [v for v in graph.outputs if v.name in gradients]
    graph.outputs.clear()
    for name, dtype in crossing.items():
        old = values[name]
        new = ir.Value(name=name, type=ir.TensorType(dtype), shape=old.shape)
        old.name = f"{name}.cut"
        old.replace_all_uses_with(new)
        graph.inputs.append(new)
    graph.outputs.extend(kept)
    _drop(graph, nodes)
    _drop_unused_inputs(graph)


def _drop(graph: ir.Graph, kept: set[str]) -> None:
    for node in reversed(list(graph)):
        if node.name not in kept:
            graph.remove(node, safe=True)


def _drop_unused_inputs(graph: ir.Graph) -> None:
    for value in list(graph.inputs):
        if not value.uses():
            graph.inputs.remove(value)
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del graph.initializers[name]
