"""The pass `release-early`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from fuseline.engine.analysis import Reads
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute
from fuseline.engine.operators import Trait, record
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.training import optimizer as names

__all__ = ["ReleaseEarly"]

_OPTIMIZERS = ("FusedAdamW", "FusedSgd")
_SETTINGS = (
    names.LEARNING_RATE,
    names.WEIGHT_DECAY,
    names.HYPER,
    names.STEP,
    names.MAX_NORM,
    names.GRADIENT_SCALE,
    names.APPLY,
)


class ReleaseEarly(Pass):
    """one update of all parameters at the end → one each, right behind its gradient and its last reader

    Gradients then no longer wait for each other, and weights are the same to the bit. There is no clipping by
    the norm of all gradients in such a graph, since the first update comes before the last gradient: its
    input `optimizer.max_norm` is gone. Updates overwrite what nodes in front of them read, so the graph must
    run in its order. It comes last: whatever is inserted behind it might read a weight too late.
    """

    name = "release-early"
    phase = "post-gradient"
    requires = (Property.OPTIMIZER,)
    forbids = (Property.ORDERED,)
    ensures = (Property.ORDERED,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        node = next((n for n in model.graph if n.op_type in _OPTIMIZERS and n.domain == "fuseline"), None)
        if node is None:
            rewriter.reject(next(iter(model.graph)), "the update is not one native operator")
            return 0
        reason = _obstacle(model, node)
        if reason is not None:
            rewriter.reject(node, reason)
        elif rewriter.permit(node, "each parameter is updated on its own"):
            _spread(model, rewriter, node)
        return rewriter.changes


def _obstacle(model: Model, node: ir.Node) -> str | None:
    if attribute(node, "skip_nonfinite", 0):
        return "whether gradients are finite is known when all are there"
    if attribute(node, "zero_gradients", 0):
        return "accumulated gradients outlive the step"
    optimizer = model.facts.training.optimizer
    return "it has one parameter" if optimizer is None or len(optimizer.values) < 2 else None


def _spread(model: Model, rewriter: Rewriter, node: ir.Node) -> None:
    graph = model.graph
    optimizer = model.facts.training.optimizer
    assert optimizer is not None
    order = list(graph)
    uses = _LastUses(rewriter.analysis(Reads).readers, order)
    count = len(optimizer.values)
    tensors = list(node.inputs[len(_SETTINGS) :])
    groups = [tensors[i : i + count] for i in range(0, len(tensors), count)]
    behind = [
        max(uses.position(value, node) for value in (parameter, gradient))
        for parameter, gradient in zip(groups[0], groups[1], strict=True)
    ]
    op = rewriter.builder(graph)
    inputs = {str(v.name): v for v in graph.inputs}
    settings = [inputs[name] for name in _SETTINGS]
    settings[_SETTINGS.index(names.MAX_NORM)] = op.constant(np.zeros(1, np.float32), "unclipped")
    norms: list[ir.Value] = []
    sequence = sorted(range(count), key=lambda i: behind[i])
    for index in sequence:
        last = index == sequence[-1]
        begin = len(op.nodes)
        made = op.copy(
            node,
            [*settings, *(group[index] for group in groups)],
            {"first": index, "advance": int(last)},
            outputs=2,
        )
        # One waits for the other, so that the step is counted when all have read it.
        settings[-1] = made[0]
        norms.append(made[1])
        rewriter.insert(order[behind[index] + 1], op.nodes[begin:], replaces=[node])
    _close(model, rewriter, node, settings[-1], norms)


def _close(
    model: Model, rewriter: Rewriter, node: ir.Node, applied: ir.Value, norms: Sequence[ir.Value]
) -> None:
    """Give the outputs of the one node from the many, and drop what only it needed."""
    graph = model.graph
    op = rewriter.builder(graph)
    norm = op.ReduceL2(op.Concat(*norms, axis=0), keepdims=1)
    rewriter.insert(node, op.nodes, replaces=[node])
    for old, new in zip(node.outputs, (applied, norm), strict=False):
        rewriter.redirect(old, new)
    rewriter.remove(node)
    waiting = [n for n in graph if names.WAITS_FOR in n.metadata_props]
    rewriter.remove(*[n for w in reversed(waiting) for n in _only_for(w)])
    graph.inputs[:] = [v for v in graph.inputs if v.name != names.MAX_NORM]


def _only_for(waiting: ir.Node) -> list[ir.Node]:
    """A node that made the update wait for an output, and the nodes in front of it that ask for its size."""
    found = [waiting]
    value = waiting.inputs[1]
    while value is not None and (producer := value.producer()) is not None and len(found) < 3:
        found.append(producer)
        value = producer.inputs[0]
    return found


class _LastUses:
    """Where memory is made or read for the last time, through views too; the update itself does not count."""

    def __init__(self, readers: Mapping[ir.Value, Sequence[ir.Node]], order: Sequence[ir.Node]) -> None:
        self._readers = readers
        self._place = {node: index for index, node in enumerate(order)}

    def position(self, value: ir.Value | None, update: ir.Node) -> int:
        assert value is not None
        producer = value.producer()
        found = self._place[producer] if producer is not None else 0
        for reader in self._readers.get(value, ()):
            if reader is update or reader not in self._place:
                continue
            found = max(found, self._place[reader])
            operator = record(reader)
            if operator is not None and operator.has(Trait.VIEW) and reader.inputs[0] is value:
                found = max(found, self.position(reader.outputs[0], update))
        return found
