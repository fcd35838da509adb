"""What a piece of memory is for: the rows of a memory table."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import read_by
from fuseline.engine.training.gradients import LOSS_GRADIENT, gradient_name

__all__ = ["Halves", "Origin", "backward_nodes", "held_by_caller"]


class Origin(enum.StrEnum):
    """Why memory is taken."""

    PARAMETER = "parameters"
    MOMENT = "moments"
    BATCH = "inputs"
    CONSTANT = "constants"
    GRADIENT = "gradients"
    SAVED = "saved for backward"
    OUTPUT = "outputs"
    TEMPORARY = "temporaries"
    WORKSPACE = "workspace"


def backward_nodes(graph: ir.Graph) -> set[ir.Node]:
    """The nodes that read the gradient of the loss, directly or not."""
    reached = {value for value in graph.inputs if value.name == LOSS_GRADIENT}
    found: set[ir.Node] = set()
    for node in graph:
        if any(value in reached for value in read_by(node)):
            found.add(node)
            reached.update(node.outputs)
    return found


def held_by_caller(model: Model, value: ir.Value) -> Origin:
    """The origin of an input or initializer, which lives outside the step."""
    optimizer = model.facts.training.optimizer
    if optimizer is not None and any(value.name in group for group in optimizer.moments):
        return Origin.MOMENT
    if model.parameters.holds(value.name or ""):
        return Origin.PARAMETER
    return Origin.CONSTANT if value.is_initializer() else Origin.BATCH


class Halves:
    """Tells what is kept from the forward half of a step for its backward half."""

    def __init__(self, model: Model) -> None:
        self._backward = backward_nodes(model.graph)
        self._gradients = {gradient_name(v) for v in model.parameters.trainable_values()}

    def origin(self, values: Sequence[ir.Value], readers: Iterable[ir.Node]) -> Origin:
        """The origin of memory that these values share, in the order in which they come to it."""
        if any(value.name in self._gradients for value in values):
            return Origin.GRADIENT
        if values[0].producer() not in self._backward and any(r in self._backward for r in readers):
            return Origin.SAVED
        return Origin.OUTPUT if any(v.is_graph_output() for v in values) else Origin.TEMPORARY
