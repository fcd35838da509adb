"""The graphs that a training run needs besides the training step, made from the same export.

`predict` has no loss; `loss` has nothing else; `backward` takes the gradients of its outputs from outside (a
loss of the user's own).
"""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from fuseline.engine.model import Model
from fuseline.engine.properties import Property
from fuseline.engine.training.forward import only_outputs

__all__ = ["OBJECTIVE", "OWN_LOSS", "only_loss", "output_gradient", "with_output_gradients", "without_loss"]

OBJECTIVE = "objective"
OWN_LOSS = "own_loss"
"""The model's loss inside a graph with an outer one; its gradient would else be called as the input is."""


def output_gradient(output: str) -> str:
    """The input that carries the gradient of an output into the graph."""
    return f"{output}.gradient"


def only_loss(model: Model) -> Model:
    """A copy that gives the loss, and of the other outputs only the new values of buffers."""
    loss = str(model.facts.training.loss)
    copy = only_outputs(model, {loss, *model.facts.training.updates})
    copy.facts.interface = replace(copy.facts.interface, outputs=(loss,))
    return copy


def without_loss(model: Model) -> Model:
    """A copy that ends in the model's outputs: the loss and the labels are gone."""
    copy = model.clone()
    graph = copy.graph
    loss = copy.facts.training.loss
    kept = [v for v in graph.outputs if v.name != loss]
    graph.outputs.clear()
    graph.outputs.extend(kept)
    RemoveUnusedNodesPass()(copy.ir)
    labels = copy.facts.interface.labels
    for value in list(graph.inputs):
        if value.name in labels and not value.uses():
            graph.inputs.remove(value)
    copy.facts.training = replace(copy.facts.training, loss=None)
    names = tuple(str(v.name) for v in kept)
    copy.facts.interface = replace(copy.facts.interface, labels=(), outputs=names)
    return copy


def with_output_gradients(model: Model) -> Model:
    """A copy with a new loss, Σ output · gradient, whose derivative is the backward of any outer loss."""
    copy = model.clone()
    graph = copy.graph
    terms: list[ir.Value] = []
    updates = copy.facts.training.updates
    for output in [o for o in graph.outputs if o.name not in updates]:
        assert output.name is not None
        incoming = ir.Value(
            name=output_gradient(output.name), type=ir.TensorType(ir.DataType.FLOAT), shape=output.shape
        )
        graph.inputs.append(incoming)
        if output.name == model.facts.training.loss:
            output.name = OWN_LOSS
        product = ir.node("Mul", [output, incoming], name=f"{OBJECTIVE}/{output.name}/Mul")
        total = ir.node("ReduceSum", product.outputs, {"keepdims": 0}, name=f"{OBJECTIVE}/{output.name}/Sum")
        graph.extend([product, total])
        terms.append(total.outputs[0])
    while len(terms) > 1:
        added = ir.node("Add", [terms.pop(), terms.pop()], name=f"{OBJECTIVE}/Add_{len(terms)}")
        graph.append(added)
        terms.append(added.outputs[0])
    objective = terms[0]
    objective.name, objective.shape = OBJECTIVE, ir.Shape([])
    objective.type = ir.TensorType(ir.DataType.FLOAT)
    graph.outputs.append(objective)
    copy.facts.training = replace(copy.facts.training, loss=OBJECTIVE)
    copy.establish(Property.TRAINING)
    copy.name_everything()
    return copy
