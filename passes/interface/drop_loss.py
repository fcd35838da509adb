"""The pass `drop-loss`."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.pruning import keep_only
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["DropLoss"]


class DropLoss(Pass):
    """graph with labels and a loss → the graph without, ending in the model's other outputs"""

    name = "drop-loss"
    # Gradients without the loss that they are of would belong to nothing.
    forbids = (Property.DIFFERENTIATED,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        loss, interface = model.facts.training.loss, model.facts.interface
        kept = [v for v in model.graph.outputs if v.name != loss]
        if loss is None or len(kept) == len(model.graph.outputs) or not rewriter.permit(loss, self.summary()):
            return rewriter.changes
        before = {v.name for v in model.graph.inputs}
        _read_sizes_elsewhere(model, rewriter)
        keep_only(model, rewriter, kept)
        model.facts.training = replace(model.facts.training, loss=None)
        outputs = tuple(name for name in interface.outputs if name != loss)
        # What only the loss read is gone; labels that the decoder's inputs are made of stay.
        gone = before - {v.name for v in model.graph.inputs}
        inputs = {n: i for n, i in interface.inputs.items() if n not in gone}
        model.facts.interface = replace(interface, inputs=inputs, labels=(), outputs=outputs)
        return rewriter.changes


def _read_sizes_elsewhere(model: Model, rewriter: Rewriter) -> None:
    """Where the model reads the size of an axis off its labels, an input that stays has it as well."""
    interface = model.facts.interface
    inputs = {str(v.name): v for v in model.graph.inputs}
    staying = {n: i for n, i in interface.inputs.items() if n in inputs and n not in interface.labels}
    homes = {a: (inputs[n], at) for n, i in staying.items() for at, a in enumerate(i.axes)}
    for name in interface.labels:
        if name not in inputs or name not in interface.inputs:
            continue
        axes = interface.inputs[name].axes
        for node in {use.node for use in inputs[name].uses() if use.node.op_type == "Shape"}:
            asked = axes[attribute(node, "start", 0) : attribute(node, "end", len(axes))]
            if node.graph is model.graph and asked and all(isinstance(a, str) and a in homes for a in asked):
                _replace_sizes(rewriter, node, [homes[axis] for axis in asked])


def _replace_sizes(rewriter: Rewriter, node: ir.Node, homes: list[tuple[ir.Value, int]]) -> None:
    with rewriter.building(node) as op:
        sizes = [op.Shape(value, start=axis, end=axis + 1) for value, axis in homes]
        joined = sizes[0] if len(sizes) == 1 else op.Concat(*sizes, axis=0)
        rewriter.replace([node], op.nodes, [(node.outputs[0], joined)])
