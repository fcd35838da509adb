"""The pass `evaluation-mode`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op
from fuseline.engine.operators.gradient import STOP_GRADIENT
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.pruning import keep_only
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.training.dropout import SEED
from fuseline.engine.training.gradients import gradient_name

__all__ = ["EvaluationMode"]


class EvaluationMode(Pass):
    """training graph → its forward part in evaluation mode: nothing dropped, batch norm by its buffers

    Gradients, the optimizer and the outputs that update buffers are gone, with the inputs that only they
    read. A batch norm without running statistics uses the batch's in evaluation too, and stays.
    """

    name = "evaluation-mode"
    invalidates = (
        Property.TRAINING,
        Property.TRAINABLE,
        Property.DIFFERENTIATED,
        Property.ACCUMULATING,
        Property.OPTIMIZER,
    )

    def run(self, model: Model, rewriter: Rewriter) -> int:
        updates = model.facts.training.updates
        for node in list(model.nodes()):
            if is_op(node, "Dropout") or node.op_type == STOP_GRADIENT:
                _pass_through(node, rewriter, self.summary())
            elif node.op_type in ("BatchNormInternal", "BatchNormalization"):
                _use_buffers(model, node, rewriter, updates)
        _switch_off_seeded(model, rewriter, self.summary())
        kept = [v for v in model.graph.outputs if not _belongs_to_training(model, str(v.name))]
        if len(kept) < len(model.graph.outputs) and rewriter.permit("outputs", self.summary()):
            keep_only(model, rewriter, kept)
        training = model.facts.training
        model.facts.training = replace(training, mode="evaluation", updates={}, optimizer=None, switch=None)
        return rewriter.changes


def _belongs_to_training(model: Model, output: str) -> bool:
    gradients = {gradient_name(v) for v in model.parameters.trainable_values()}
    return output in gradients or output in model.facts.training.updates or output.startswith("optimizer.")


def _pass_through(node: ir.Node, rewriter: Rewriter, note: str) -> None:
    x = node.inputs[0]
    if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
        rewriter.reject(node, "its mask is used elsewhere")
    elif x is not None and rewriter.permit(node, note):
        rewriter.redirect(node.outputs[0], x)
        rewriter.remove(node)


def _use_buffers(model: Model, node: ir.Node, rewriter: Rewriter, updates: Mapping[str, str]) -> None:
    """Normalise by the running statistics instead of the batch's."""
    if len(node.outputs) < 3:
        return
    statistics = [_updated_buffer(model, value, updates) for value in node.outputs[1:3]]
    if None in statistics:
        statistics = list(node.inputs[3:5])
        if not all(v is not None and model.parameters.holds(v.name) for v in statistics):
            rewriter.reject(node, "it has no running statistics")
            return
    if not rewriter.permit(node, "batch norm by its buffers"):
        return
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    op = rewriter.builder(node)
    made = op.BatchNormalization(*node.inputs[:3], *statistics, epsilon=epsilon)
    rewriter.insert(node, op.nodes, replaces=(node,))
    rewriter.redirect(node.outputs[0], made)


def _updated_buffer(model: Model, value: ir.Value, updates: Mapping[str, str]) -> ir.Value | None:
    """The buffer that a batch statistic flows into, if the graph returns its new content."""
    pending, seen = [value], {value}
    while pending:
        current = pending.pop()
        if current.name is not None and current.name in updates:
            return _held(model, updates[current.name])
        reached = [output for use in current.uses() for output in use.node.outputs if output not in seen]
        seen.update(reached)
        pending += reached
    return None


def _held(model: Model, state: str) -> ir.Value | None:
    """A buffer by its own name or by that of its value: an initializer, or an input once it is fed."""
    name = model.parameters[state].value if state in model.parameters else state
    inputs = {v.name: v for v in model.graph.inputs}
    return model.graph.initializers.get(name or "") or inputs.get(name)


def _switch_off_seeded(model: Model, rewriter: Rewriter, note: str) -> None:
    """Operators that drop by a seed read their ratio as the input before it."""
    seed = next((v for v in model.graph.inputs if v.name == SEED), None)
    users = tuple(seed.uses()) if seed is not None else ()
    if not users or not rewriter.permit(SEED, note):
        return
    op = rewriter.builder(model.graph)
    nothing, unseeded = op.constant(np.zeros(1, np.float32)), op.constant(np.zeros(1, np.int64))
    for node, index in users:
        node.replace_input_with(index - 1, nothing)
        node.replace_input_with(index, unseeded)
    assert seed is not None
    model.graph.inputs.remove(seed)
