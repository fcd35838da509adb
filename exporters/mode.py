"""The training switch: every Dropout of a training export reads one boolean initializer, `training_mode`.

Checks turn it off, so that dropout passes through while all else trains; the pass `evaluation-mode` makes a
graph that evaluates.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import tensor_of
from fuseline.engine.initializers import add_initializer, set_content
from fuseline.engine.model import Model

__all__ = ["SWITCH", "install_switch", "without_dropout"]

SWITCH = "training_mode"


def install_switch(model: ir.Model) -> bool:
    """Let all training-mode Dropout nodes read one initializer; whether there was any."""
    graph = model.graph
    nodes = [n for n in graph.all_nodes() if n.op_type == "Dropout" and _constant(n, 2) is not None]
    training = [n for n in nodes if bool(_constant(n, 2))]
    if not training:
        return False
    switch = add_initializer(graph, SWITCH, np.array(True))
    for node in training:
        node.replace_input_with(2, switch)
    return True


def without_dropout(model: Model) -> Model:
    """A copy whose dropout passes through while all else still trains; the weights are shared."""
    copy = model.clone()
    switch = copy.graph.initializers.get(SWITCH)
    if switch is not None:
        set_content(switch, np.array(False))
    return copy


def _constant(node: ir.Node, index: int) -> np.ndarray | None:  # type: ignore[type-arg]
    value = node.inputs[index] if index < len(node.inputs) else None
    tensor = tensor_of(value) if value is not None else None
    return tensor.numpy() if tensor is not None else None
