"""Gradients are compared under original names, whatever a pass did to the weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from fuseline.engine.bisect import bisect
from fuseline.engine.errors import GateFailed
from fuseline.engine.model import Model
from fuseline.engine.observers import Verify
from fuseline.engine.parameters import Parameter
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.verification import Verifier

TEXT = """<ir_version: 10, opset_import: ["" : 20]>
agraph (float[N,4] x, float[N,3] target) => (float loss, float[N,3] y) <float half = {0.5}, bool on = {1}> {
    h = MatMul(x, w)
    d, mask = Dropout(h, half, on)
    y = Add(d, b)
    e = Sub(y, target)
    s = Mul(e, e)
    loss = ReduceMean <keepdims: int = 0> (s)
}"""


def training_model(text: str = TEXT) -> Model:
    text = text.replace("<float half", "<float[4,3] w = {%s}, float[3] b = {1,2,3}, float half")
    model = Model.from_text(text % ",".join(str(i / 7) for i in range(12)))
    model.facts.training = replace(model.facts.training, loss="loss")
    model.establish(Property.TRAINING)
    model.parameters.add(Parameter("layer.weight", "w", (4, 3)))
    model.parameters.add(Parameter("layer.bias", "b", (3,)))
    return model


class TransposeWeight(Pass):
    """MatMul(x, w) → MatMul(x, Transpose(wᵀ))"""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        node = next(n for n in model.graph if n.op_type == "MatMul")
        weight = node.inputs[1]
        assert weight is not None
        if rewriter.permit(node):
            back = ir.node("Transpose", [weight], attributes={"perm": [1, 0]})
            rewriter.insert(node, [back])
            node.replace_input_with(1, back.outputs[0])
            model.transpose_parameter(weight, (1, 0))
        return rewriter.changes


class FreezeBias(Pass):
    """Add(x, b) → Add(x, constant): equal outputs, but the bias gets no gradient any more"""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        node = next(n for n in model.graph if n.op_type == "Add")
        bias = node.inputs[1]
        assert bias is not None
        assert bias.const_value is not None
        if rewriter.permit(node, "froze the bias"):
            frozen = ir.node("Constant", [], attributes={"value": ir.tensor(bias.const_value.numpy().copy())})
            rewriter.insert(node, [frozen])
            node.replace_input_with(1, frozen.outputs[0])
        return rewriter.changes


TransposeWeight.name, FreezeBias.name = "transpose-weight", "freeze-bias"


def test_a_transposed_weight_has_the_same_gradient() -> None:
    observer = Verify("gradients")
    result = Pipeline.of(TransposeWeight()).run(training_model(), [observer])
    assert result.changes == observer.checked == 1
    verifier = Verifier(training_model(), "gradients")
    gradients = verifier.measure(result.model).gradients
    assert gradients is not None
    assert gradients[0]["layer.weight"].shape == (4, 3)
    assert set(gradients[0]) == {"layer.weight", "layer.bias"}


def test_a_lost_gradient_is_caught_though_outputs_agree() -> None:
    Pipeline.of(FreezeBias()).run(training_model(), [Verify("outputs")])
    with pytest.raises(GateFailed, match=r"gradient of 'layer\.bias': is missing"):
        Pipeline.of(FreezeBias()).run(training_model(), [Verify("gradients")])


def test_bisect_finds_a_lost_gradient() -> None:
    model = training_model()
    culprit = bisect(model, Pipeline.of(TransposeWeight(), FreezeBias()), Verifier(model, "gradients"))
    assert culprit is not None
    assert culprit.step.name == "freeze-bias"
    assert culprit.rewrite is not None
    assert culprit.rewrite.note == "froze the bias"


def test_gradients_are_those_of_the_loss() -> None:
    model = training_model()
    verifier = Verifier(model, "gradients")
    measured = verifier.measure(model)
    assert measured.gradients is not None
    for fed, outputs, gradients in zip(verifier.inputs, measured.outputs, measured.gradients, strict=True):
        error = outputs["y"] - fed["target"]
        np.testing.assert_allclose(
            gradients["layer.bias"], 2 * error.sum(axis=0) / error.size, rtol=1e-4, atol=1e-6
        )


def test_gradients_that_were_never_compared_are_no_success() -> None:
    model = training_model(TEXT.replace("Mul(e, e)", "Hardmax(e)"))
    with pytest.raises(GateFailed, match="no gradients were compared"):
        Pipeline.of(TransposeWeight()).run(model, [Verify("gradients")])


def test_a_graph_that_needs_mending_is_compared_all_the_same() -> None:
    model = training_model(TEXT.replace("d, mask = Dropout", "d = Dropout"))
    measured = Verifier(model, "gradients").measure(model)
    assert measured.gradients is not None
    assert set(measured.gradients[0]) == {"layer.weight", "layer.bias"}
