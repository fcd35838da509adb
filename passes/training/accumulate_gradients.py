"""The pass `accumulate-gradients`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.training.gradients import gradient_name
from fuseline.engine.training.optimizer import add_update

__all__ = ["AccumulateGradients"]


class AccumulateGradients(Pass):
    """gradient g → buffer + g, written back to the buffer (an input that starts at zero)

    The output that was the gradient becomes the sum since the buffer was last cleared.
    """

    name = "accumulate-gradients"
    phase = "post-gradient"
    requires = (Property.DIFFERENTIATED,)
    forbids = (Property.OPTIMIZER,)
    ensures = (Property.ACCUMULATING,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        if model.has(Property.ACCUMULATING):
            return 0
        outputs = {o.name: o for o in model.graph.outputs}
        for value in model.parameters.trainable_values():
            gradient = outputs.get(gradient_name(value))
            if gradient is not None and rewriter.permit(str(gradient.name), self.summary()):
                _accumulate(model, rewriter, gradient)
        return rewriter.changes


def _accumulate(model: Model, rewriter: Rewriter, gradient: ir.Value) -> None:
    graph, name, producer = model.graph, str(gradient.name), gradient.producer()
    assert producer is not None
    buffer = ir.Value(name=f"{name}.buffer", type=gradient.type, shape=gradient.shape)
    graph.inputs.append(buffer)
    gradient.name = f"{name}.new"
    op = rewriter.builder(graph)
    total = op.Add(buffer, gradient)
    total.name = name
    rewriter.append(graph, op.nodes, replaces=[producer])
    graph.outputs[[o is gradient for o in graph.outputs].index(True)] = total
    add_update(model, name, str(buffer.name))
