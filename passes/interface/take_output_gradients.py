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
        terms: list[ir.Value] = []
        for output in [o for o in graph.outputs if o.name not in training.updates]:
            kind = output.type or ir.TensorType(ir.DataType.FLOAT)
            incoming = ir.Value(name=output_gradient(str(output.name)), type=kind, shape=output.shape)
            graph.inputs.append(incoming)
            if output.name == training.loss:
                output.name = OWN_LOSS
            product = ir.node("Mul", [output, incoming], name=f"{OBJECTIVE}/{output.name}/Mul")
            total = ir.node("ReduceSum", product.outputs, {"keepdims": 0})
            terms.append(_append(graph, rewriter, product, total))
        while len(terms) > 1:
            terms.append(_append(graph, rewriter, ir.node("Add", [terms.pop(), terms.pop()])))
        objective = terms[0]
        objective.name, objective.shape = OBJECTIVE, ir.Shape([])
        objective.type = ir.TensorType(ir.DataType.FLOAT)
        graph.outputs.append(objective)
        model.facts.training = replace(training, loss=OBJECTIVE)
        return rewriter.changes


def _append(graph: ir.Graph, rewriter: Rewriter, *nodes: ir.Node) -> ir.Value:
    for node in nodes:
        rewriter.adopt(graph, node, replaces=())
        graph.append(node)
    return nodes[-1].outputs[0]
