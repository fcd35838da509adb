"""The forward part of a training graph, for evaluation: no gradients, no optimizer, nothing dropped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from fuseline.engine.errors import ModelError, did_you_mean
from fuseline.engine.model import Model
from fuseline.engine.properties import Property
from fuseline.engine.training.dropout import SEED
from fuseline.engine.training.optimizer import WAITS_FOR

__all__ = ["forward_model", "only_outputs"]


def forward_model(model: Model, outputs: Sequence[str]) -> Model:
    """A copy of `model` that computes `outputs` alone, in evaluation mode.

    Inputs that they do not need, such as the labels when only the logits are asked for, are gone.
    """
    copy = model.clone()
    graph = copy.graph
    known = {v.name: v for v in graph.outputs}
    for name in outputs:
        if name not in known:
            raise ModelError(
                f"the graph has no output {name!r}", hint=did_you_mean(name, [str(k) for k in known])
            )
    graph.outputs[:] = [known[name] for name in outputs]
    updates = copy.facts.training.updates
    for node in list(graph):
        _switch_off(graph, node, updates)
    _switch_off_seeded(graph)
    _remove_unneeded(graph)
    copy.facts.training = replace(copy.facts.training, optimizer=None, updates={})
    copy.undo(*Property)
    return copy


def only_outputs(model: Model, outputs: Collection[str]) -> Model:
    """A copy of `model` that gives no other outputs, and computes nothing for others alone."""
    copy = model.clone()
    graph = copy.graph
    dropped = [v for v in graph.outputs if v.name not in outputs]
    graph.outputs[:] = [v for v in graph.outputs if v.name in outputs]
    names = {v.name for v in dropped}
    for node in graph:
        if node.metadata_props.get(WAITS_FOR) in names and node.inputs[0] is not None:
            node.outputs[0].replace_all_uses_with(node.inputs[0])
    _remove_unneeded(graph)
    for value in dropped:
        if value.producer() is not None and not value.uses():
            value.name = ""  # an optional output: its node has others, and can leave this one out
    return copy


def _switch_off(graph: ir.Graph, node: ir.Node, updates: Mapping[str, str]) -> None:
    """Put a node that behaves differently in training into evaluation mode."""
    if node.op_type == "Dropout":
        _replace(graph, node, ir.node("Identity", [node.inputs[0]]))
    elif node.op_type in ("BatchNormInternal", "BatchNormalization"):
        epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
        running = [
            _updated_buffer(graph, node, i, updates) or node.inputs[i + 2]
            for i in (1, 2)
            if len(node.outputs) > 2
        ]
        inputs = [*node.inputs[:3], *(running or node.inputs[3:5])]
        _replace(graph, node, ir.node("BatchNormalization", inputs, {"epsilon": epsilon}))


def _updated_buffer(
    graph: ir.Graph, node: ir.Node, index: int, updates: Mapping[str, str]
) -> ir.Value | None:
    """The buffer that a batch statistic flows into, if the graph returns its new value."""
    pending = [node.outputs[index]]
    while pending:
        value = pending.pop()
        if value.name is not None and value.name in updates:
            return graph.initializers.get(updates[value.name])
        pending += [output for use in value.uses() for output in use.node.outputs]
    return None


def _switch_off_seeded(graph: ir.Graph) -> None:
    """Operators that drop by a seed read their ratio as the input before it."""
    seeds = [v for v in graph.inputs if v.name == SEED]
    users = seeds[0].uses() if seeds else ()
    if not users:
        return
    nothing = ir.Value(name="dropout_off", const_value=ir.tensor(np.zeros(1, np.float32), name="dropout_off"))
    graph.register_initializer(nothing)
    for node, index in users:
        node.replace_input_with(index - 1, nothing)


def _replace(graph: ir.Graph, old: ir.Node, new: ir.Node) -> None:
    new.name = old.name
    kept, value = old.outputs[0], new.outputs[0]
    value.type, value.shape = kept.type, kept.shape
    graph.insert_before(old, new)
    kept.replace_all_uses_with(value, replace_graph_outputs=True)
    kept.name, value.name = f"{kept.name}.training", kept.name


def _remove_unneeded(graph: ir.Graph) -> None:
    for node in reversed(list(graph)):
        if not any(v.uses() or v.is_graph_output() for v in node.outputs):
            graph.remove(node, safe=True)
    outputs = set(graph.outputs)
    graph.inputs[:] = [v for v in graph.inputs if v.uses() or v in outputs]
    for name, value in list(graph.initializers.items()):
        if not value.uses() and value not in outputs:
            del graph.initializers[name]
