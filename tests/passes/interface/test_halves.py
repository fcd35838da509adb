"""A graph cut in two gives the gradients of the whole, whatever loss stands between the halves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fuseline.engine import runtime
from fuseline.engine.facts import DeclaredInput
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 3] x, float[2, 3] labels) => (float loss, float[2, 3] y)
  <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}>
{
  a = MatMul(x, w)
  y = Tanh(a)
  d = Sub(y, labels)
  e = Mul(d, d)
  loss = ReduceSum<keepdims: int = 0>(e)
}"""


def model() -> Model:
    made = Model.from_text(TEXT)
    made.parameters.add(Parameter("w", "w", (3, 3)))
    made.facts.training = replace(made.facts.training, loss="loss")
    made.facts.interface = replace(made.facts.interface, labels=("labels",), outputs=("loss", "y"))
    return made


def test_the_halves_give_the_gradient_of_the_whole() -> None:
    text = "drop-loss,take-output-gradients,differentiate,feed-parameters"
    forward = Pipeline.parse(f"{text},keep-forward").run(model()).model
    backward = Pipeline.parse(f"{text},keep-backward").run(model()).model
    assert not forward.has(Property.DIFFERENTIATED)
    random = np.random.default_rng(0)
    x, labels, w = (random.standard_normal(s).astype(np.float32) * 0.3 for s in ((2, 3), (2, 3), (3, 3)))
    first = runtime.run(runtime.session(forward), {"x": x, "w": w})
    feeds = {**first, "x": x, "w": w, "y.gradient": 2 * (first["y"] - labels), "loss_grad": np.float32(1)}
    gradient = runtime.run(runtime.session(backward), feeds)["w_grad"]
    y = np.tanh(x @ w)
    np.testing.assert_allclose(gradient, x.T @ (2 * (y - labels) * (1 - y * y)), rtol=1e-5, atol=1e-6)


def test_without_its_loss_a_graph_needs_no_labels() -> None:
    made = Pipeline.parse("drop-loss").run(model()).model
    assert [v.name for v in made.graph.inputs] == ["x"]
    assert [v.name for v in made.graph.outputs] == ["y"]
    assert made.facts.interface.outputs == ("y",)
    assert made.facts.training.loss is None


def test_sizes_are_not_read_off_labels_that_go() -> None:
    """Torch's exporter takes the size of the batch from any input that has it."""
    made = Model.from_text("""<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 3] x, float[batch] labels) => (float loss, float[batch, 3] y)
  <float[1, 3] w = {1, 2, 3}, int64[1] three = {3}>
{
  size = Shape<end: int = 1>(labels)
  shape = Concat<axis: int = 0>(size, three)
  wide = Expand(w, shape)
  y = Mul(x, wide)
  first = ReduceSum<keepdims: int = 0>(y)
  d = Sub(first, labels)
  loss = ReduceSum<keepdims: int = 0>(d)
}""")
    made.facts.training = replace(made.facts.training, loss="loss")
    inputs = {"x": DeclaredInput(("batch", 3)), "labels": DeclaredInput(("batch",))}
    made.facts.interface = replace(
        made.facts.interface, inputs=inputs, labels=("labels",), outputs=("loss", "y")
    )
    predicting = Pipeline.parse("drop-loss").run(made).model
    assert [v.name for v in predicting.graph.inputs] == ["x"]
    assert list(predicting.facts.interface.inputs) == ["x"]
    x = np.ones((4, 3), np.float32)
    found = runtime.run(runtime.session(predicting), {"x": x})["y"]
    np.testing.assert_array_equal(found, x * np.array([[1, 2, 3]], np.float32))
