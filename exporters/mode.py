"""The training switch: one export serves training and evaluation.

Every Dropout of a training export reads one boolean initializer, `training_mode`; batch norm has an
attribute of that name. `to_evaluation` switches both, so that no second export is needed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from fuseline.engine.model import Model
from fuseline.engine.operators.gradient import STOP_GRADIENT
from fuseline.engine.properties import Property

__all__ = ["SWITCH", "install_switch", "to_evaluation", "without_dropout"]

SWITCH = "training_mode"


def install_switch(model: ir.Model) -> bool:
    """Let all training-mode Dropout nodes read one initializer; whether there was any."""
    graph = model.graph
    nodes = [n for n in graph.all_nodes() if n.op_type == "Dropout" and _constant(n, 2) is not None]
    training = [n for n in nodes if bool(_constant(n, 2))]
    if not training:
        return False
    switch = ir.Value(name=SWITCH, shape=ir.Shape([]), type=ir.TensorType(ir.DataType.BOOL))
    switch.const_value = ir.tensor(np.array(True), name=SWITCH)
    graph.register_initializer(switch)
    for node in training:
        node.replace_input_with(2, switch)
    return True


def to_evaluation(model: Model) -> Model:
    """A copy of a training export that evaluates: dropout passes through, batch norm uses its buffers.

    The weights are shared with the original; the outputs that update buffers are gone.
    """
    copy = without_dropout(model)
    updates = dict(copy.facts.training.updates)
    for node in list(copy.graph.all_nodes()):
        if node.op_type == "BatchNormalization" and len(node.outputs) == 3:
            _evaluate_batch_norm(copy, node, updates)
        elif node.op_type == STOP_GRADIENT and node.inputs[0] is not None:
            ir.convenience.replace_all_uses_with(node.outputs[0], node.inputs[0])
    kept = [value for value in copy.graph.outputs if value.name not in updates]
    copy.graph.outputs.clear()
    copy.graph.outputs.extend(kept)
    RemoveUnusedNodesPass()(copy.ir)
    copy.facts.training = replace(copy.facts.training, mode="evaluation", updates={})
    copy.undo(Property.TRAINING)
    return copy


def without_dropout(model: Model) -> Model:
    """A copy whose dropout passes through while all else still trains; the weights are shared."""
    copy = model.clone()
    switch = copy.graph.initializers.get(SWITCH)
    if switch is not None:
        switch.const_value = ir.tensor(np.array(False), name=SWITCH)
    return copy


def _evaluate_batch_norm(model: Model, node: ir.Node, updates: dict[str, str]) -> None:
    """Normalise by the running statistics instead of the batch's."""
    statistics = [_buffer(model, value, updates) for value in node.outputs[1:]]
    if None in statistics:
        # A batch norm without running statistics uses the batch's in evaluation too.
        return
    graph = node.graph
    assert graph is not None
    attributes = [a for a in node.attributes.values() if a.name != "training_mode"]
    made = ir.Node("", "BatchNormalization", [*node.inputs[:3], *statistics], attributes, name=node.name)
    made.metadata_props.update(node.metadata_props)
    old, new = node.outputs[0], made.outputs[0]
    name = old.name
    new.shape, new.type = old.shape, old.type
    graph.insert_before(node, made)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    old.name, new.name = f"{name}_of_batch", name


def _buffer(model: Model, value: ir.Value, updates: dict[str, str]) -> ir.Value | None:
    """The buffer that a batch statistic flows into."""
    pending = [value]
    while pending:
        current = pending.pop()
        if current.name in updates:
            held = model.parameters[updates[current.name]].value
            return model.graph.initializers[held] if held else None
        pending += [output for use in current.uses() for output in use.node.outputs]
    return None


def _constant(node: ir.Node, index: int) -> np.ndarray | None:  # type: ignore[type-arg]
    value = node.inputs[index] if index < len(node.inputs) else None
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return tensor.numpy() if tensor is not None else None
