"""Gradients by ONNX Runtime's builder: names, values, provenance and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from fuseline.engine.errors import PassError
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.rewriting.rewriter import MODULE_KEY
from fuseline.engine.runtime import run, session
from fuseline.engine.training.gradients import build_gradients

LINEAR = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[N,4] x) => (float loss)
<float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3}, float[3] b = {0,0,-100}, float[2] unused = {1,2}>
{
  m = MatMul(x, w)
  y = Add(m, b)
  z = Relu(y)
  loss = ReduceMean<keepdims=0>(z)
}
"""


def linear() -> Model:
    model = Model.from_text(LINEAR)
    for name in ("w", "b", "unused"):
        value = model.graph.initializers[name]
        model.parameters.add(Parameter(name=name, value=name, shape=tuple(value.const_value.shape)))
    for node in model.nodes():
        node.metadata_props[MODULE_KEY] = "net.linear"
    return model


def test_one_gradient_per_trainable_value_that_matters() -> None:
    model = build_gradients(linear())
    assert [o.name for o in model.graph.outputs] == ["loss", "w_grad", "b_grad"]
    assert set(linear().graph.initializers) <= set(model.graph.initializers)


def test_what_only_decides_has_no_gradient() -> None:
    model = Model.from_text(
        LINEAR.replace("z = Relu(y)", "k = Cast<to=9>(unused) z = Where(k, y, y)").replace(
            "float[2] unused = {1,2}", "float[3] unused = {1,0,2}"
        )
    )
    for name in ("w", "b", "unused"):
        shape = tuple(model.graph.initializers[name].const_value.shape)
        model.parameters.add(Parameter(name=name, value=name, shape=shape))
    assert [o.name for o in build_gradients(model).graph.outputs] == ["loss", "w_grad", "b_grad"]


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_loss_gradient_scales(scale: float) -> None:
    x = np.ones((2, 4), np.float32)
    got = run(session(build_gradients(linear())), {"x": x, "loss_grad": np.float32(scale)})
    np.testing.assert_allclose(got["b_grad"], np.array([1, 1, 0]) * scale / 3, rtol=1e-6)
    np.testing.assert_allclose(got["w_grad"], np.tile([1, 1, 0], (4, 1)) * scale / 3, rtol=1e-6)


def test_forward_nodes_are_kept_and_gradient_nodes_know_their_module() -> None:
    before, after = linear(), build_gradients(linear())
    forward = [n.name for n in before.nodes()]
    assert [n.name for n in after.nodes()][: len(forward)] == forward
    assert {n.metadata_props.get(MODULE_KEY) for n in after.nodes()} == {"net.linear"}


def test_the_model_given_is_untouched() -> None:
    model = linear()
    before = model.fingerprint()
    build_gradients(model)
    assert model.fingerprint() == before


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(PassError, match="no trainable value leads to the output 'loss'"):
        build_gradients(linear(), trainable=["unused"])
