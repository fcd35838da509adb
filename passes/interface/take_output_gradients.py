"""The pass `take-output-gradients`."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.training.cut import OBJECTIVE, OWN_LOSS, output_gradient

__all__ = ["TakeOutputGradients"]


class TakeOutputGradients(Pass):
    """outputs y, … → the same, an input `y.gradient` for each, and the loss `objective` = Σ y · y.gradient

    The derivative of that loss is the backward of any loss that is computed outside the graph. The model's
    own loss, if it has one, is an output like the others and called `own_loss`.
    """

    name = "take-output-gradients"
    phase = "pre-gradient"
    ensures = (Property.TRAINING,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        graph, training = model.graph, model.facts.training
        if training.loss == OBJECTIVE or not rewriter.permit("outputs", self.summary()):
            return rewriter.changes
        op = rewriter.builder(graph)
        terms: list[ir.Value] = []
        for output in [o for o in graph.outputs if o.name not in training.updates and _is_number(o)]:
            kind = output.type or ir.TensorType(ir.DataType.FLOAT)
            incoming = ir.Value(name=output_gradient(str(output.name)), type=kind, shape=output.shape)
            graph.inputs.append(incoming)
            if output.name == training.loss:
                output.name = OWN_LOSS
            terms.append(op.ReduceSum(op.Mul(output, incoming), keepdims=0))
        while len(terms) > 1:
            terms.append(op.Add(terms.pop(), terms.pop()))
        objective = terms[0]
        objective.name = OBJECTIVE
        rewriter.append(graph, op.nodes)
        graph.outputs.append(objective)
        model.facts.training = replace(training, loss=OBJECTIVE)
        return rewriter.changes


def _is_number(output: ir.Value) -> bool:
    """What counts or chooses has no gradient."""
    return output.dtype is None or output.dtype.is_floating_point()
