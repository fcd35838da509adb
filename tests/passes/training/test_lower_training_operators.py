"""Lowered gradient operators give the same gradients, under ONNX Runtime's optimizers too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.runtime import run, session
from fuseline.kernels import available

pytestmark = pytest.mark.skipif(not available(), reason="the native operators are not built")


@dataclass(frozen=True)
class Case:
    """`body` computes y from the trainable x, the weights w or both; `torch` does the same."""

    operator: str
    shape: tuple[int, ...]
    body: str
    torch: Callable[[torch.Tensor], torch.Tensor]


def _ints(name: str, *numbers: int) -> str:
    return f"{name} = Constant<value_ints = [{', '.join(map(str, numbers))}]>()\n"


def _slice(start: int, end: int, axis: int) -> str:
    return _ints("s", start) + _ints("e", end) + _ints("a", axis) + "y = Slice(x, s, e, a)"


IDS = torch.tensor([[2, 0, 2], [1, -1, 2]])
IDS_TEXT = "i = Constant<value = int64[2,3] {2, 0, 2, 1, -1, 2}>()\n"
PLACES = torch.tensor([[0, 1, 1], [2, 0, 2]])
PLACES_TEXT = "i = Constant<value = int64[2,3] {0, 1, 1, 2, 0, 2}>()\n"

CASES = {
    "tanh": Case("TanhGrad", (2, 5), "y = Tanh(x)", torch.tanh),
    "sigmoid": Case("SigmoidGrad", (2, 5), "y = Sigmoid(x)", torch.sigmoid),
    "relu": Case("ReluGrad", (2, 5), "y = Relu(x)", torch.relu),
    "softmax": Case("SoftmaxGrad_13", (2, 3, 5), "y = Softmax<axis=1>(x)", lambda x: x.softmax(1)),
    "gather_first": Case("GatherGrad", (4, 5), IDS_TEXT + "y = Gather(x, i)", lambda x: x[IDS]),
    "gather_middle": Case(
        "GatherGrad", (2, 3, 5), IDS_TEXT + "y = Gather<axis=1>(x, i)", lambda x: x[:, IDS]
    ),
    "gather_last": Case("GatherGrad", (2, 3), IDS_TEXT + "y = Gather<axis=-1>(x, i)", lambda x: x[:, IDS]),
    "gather_elements": Case(
        "GatherElementsGrad",
        (2, 4),
        PLACES_TEXT + "y = GatherElements<axis=1>(x, i)",
        lambda x: x.gather(1, PLACES),
    ),
    "gather_nd": Case(
        "GatherNDGrad",
        (3, 4, 5),
        "i = Constant<value = int64[2,2] {2, 3, 0, 1}>()\ny = GatherND(x, i)",
        lambda x: x[[2, 0], [3, 1]],
    ),
    "slice": Case("SliceGrad", (3, 6), _slice(1, 4, 1), lambda x: x[:, 1:4]),
    "slice_first": Case("SliceGrad", (5, 6), _slice(-3, -1, 0), lambda x: x[-3:-1]),
    "slice_to_the_end": Case("SliceGrad", (3, 6), _slice(2, 2**40, -1), lambda x: x[:, 2:]),
    "slice_of_two_axes": Case(
        "SliceGrad",
        (3, 6),
        _ints("s", 1, 2) + _ints("e", 3, 5) + _ints("a", 0, 1) + "y = Slice(x, s, e, a)",
        lambda x: x[1:3, 2:5],
    ),
    "slice_of_nothing": Case(
        "SliceGrad",
        (3, 6),
        _slice(6, 2**40, 1).replace("y =", "none =") + "\ny = Concat<axis=1>(x, none)",
        lambda x: torch.cat([x, x[:, 6:]], 1),
    ),
    # Here ONNX Runtime moves a transposition through whatever makes the gradient of the slice.
    "slice_between_transpositions": Case(
        "SliceGrad",
        (2, 3, 4, 6),
        "t = Transpose<perm=[0,2,1,3]>(x)\n"
        + _slice(1, 4, 3).replace("y = Slice(x", "cut = Slice(t")
        + "\ny = Transpose<perm=[0,2,1,3]>(cut)",
        lambda x: x[..., 1:4],
    ),
    "conv": Case(
        "ConvGrad",
        (3, 2, 3, 3),
        "i = ConstantOfShape<value = float[1] {0.5}>(d)\ny = Conv<pads=[1,1,1,1], strides=[2,2]>(i, x)",
        lambda w: F.conv2d(torch.full((2, 2, 7, 8), 0.5), w, stride=2, padding=1),
    ),
}


def _model(case: Case) -> Model:
    values = ",".join(map(repr, _input(case).reshape(-1).tolist()))
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g () => (float loss) <float[{",".join(map(str, case.shape))}] x = {{{values}}}>
    {{ d = Constant<value_ints = [2, 2, 7, 8]>()
       {case.body}
       bent = Sin(y)
       loss = ReduceSum<keepdims=0>(bent) }}"""
    model = Model.from_text(text)
    model.parameters.add(Parameter(name="x", value="x", shape=case.shape))
    return model


def _input(case: Case) -> np.ndarray:
    return np.random.default_rng(3).uniform(-2, 2, case.shape).astype(np.float32)


def _expected(case: Case) -> np.ndarray:
    x = torch.from_numpy(_input(case)).requires_grad_()
    case.torch(x).sin().sum().backward()
    assert x.grad is not None
    return x.grad.numpy()


@pytest.mark.parametrize("optimize", ["none", "all"])
@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_torchs(name: str, optimize: str) -> None:
    case = CASES[name]
    model = Pipeline.parse("lift-constants,infer-shapes,differentiate").run(_model(case)).model
    assert case.operator in {n.op_type for n in model.nodes()}
    lowered = Pipeline.parse("lower-training-operators").run(model).model
    assert case.operator not in {n.op_type for n in lowered.nodes()}
    found = run(session(lowered, optimize=optimize, threads=1), {"loss_grad": np.float32(1)})["x_grad"]
    np.testing.assert_allclose(found, _expected(case), rtol=1e-5, atol=1e-6)
