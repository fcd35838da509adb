"""`check-trainable`: everything that blocks a gradient is named at once, with its place and a way out."""

from __future__ import annotations

import numpy as np
import pytest

from fuseline import kernels
from fuseline.engine.errors import FuselineError, PassError
from fuseline.engine.model import Model
from fuseline.engine.operators import lookup, records
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import MODULE_KEY, SOURCE_KEY
from fuseline.engine.training.gradients import build_gradients

HEAD = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>\n'


def model(body: str, shape: str = "2,4,6,6") -> Model:
    count = int(np.prod([int(d) for d in shape.split(",")]))
    numbers = ",".join("0.5" for _ in range(count))
    graph = f"g () => (float loss) <float[{shape}] x = {{{numbers}}}>"
    made = Model.from_text(f"{HEAD} {graph} {{ {body}\n loss = ReduceSum<keepdims=0>(y) }}")
    made.parameters.add(Parameter(name="x", value="x", shape=tuple(int(d) for d in shape.split(","))))
    return made


def test_every_blocking_node_is_listed_with_its_place() -> None:
    blocked = model("a = ReduceProd<keepdims=1>(x)\n b = Det(x)\n c = Elu(a)\n y = Add(b, c)")
    for node in blocked.nodes():
        node.metadata_props[MODULE_KEY] = "encoder.pool"
        node.metadata_props[SOURCE_KEY] = "pool.py:12"
    with pytest.raises(PassError) as caught:
        Pipeline.parse("check-trainable").run(blocked)
    lines = caught.value.message.splitlines()
    assert lines[0] == "3 nodes stand between parameters and the loss without a gradient:"
    assert lines[1:] == [
        "  ReduceProd 'ReduceProd_0' in encoder.pool at pool.py:12: write it as exp(sum(log(x)))",
        "  Det 'Det_1' in encoder.pool at pool.py:12: "
        "freeze the parameters before it, or write it with other operators",
        "  Elu 'Elu_2' in encoder.pool at pool.py:12: 'prepare-for-gradient' rewrites it",
    ]


def test_what_is_off_the_path_does_not_matter() -> None:
    free = model("s = Shape(x)\n p = ReduceProd(s)\n f = Cast<to=1>(p)\n y = Mul(x, f)")
    assert Pipeline.parse("check-trainable").run(free).model.has(Property.TRAINABLE)


def test_frozen_parameters_need_no_gradient() -> None:
    frozen = model("a = Det(x)\n y = Identity(a)")
    frozen.parameters.set_trainable(["x"], False)
    Pipeline.parse("check-trainable").run(frozen)


# One graph per operator of the table; what needs more inputs is spelled out.
BODIES = {
    "AveragePool": "y = AveragePool<kernel_shape=[2,2]>(x)",
    "Cast": "d = Cast<to=11>(x)\n y = Cast<to=1>(d)",
    "Clip": "l = Constant<value_float=0.0>()\n y = Clip(x, l)",
    "Concat": "n = Neg(x)\n y = Concat<axis=1>(x, n)",
    "Conv": "s = Constant<value_ints=[3,4,2,2]>()\n w = ConstantOfShape(s)\n y = Conv(x, w)",
    "CumSum": "a = Constant<value=int64 {1}>()\n y = CumSum(x, a)",
    "Dropout": "r = Constant<value_float=0.5>()\n t = Constant<value=bool {1}>()\n y, m = Dropout(x, r, t)",
    "Expand": "s = Constant<value_ints=[3,2,4,6,6]>()\n y = Expand(x, s)",
    "Gather": "i = Constant<value_ints=[1,0]>()\n y = Gather<axis=1>(x, i)",
    "GatherElements": "i = Constant<value=int64[1,1,1,1] {0}>()\n y = GatherElements<axis=1>(x, i)",
    "GatherND": "i = Constant<value=int64[1,2] {0,1}>()\n y = GatherND(x, i)",
    "Gemm": "f = Flatten(x)\n n = Neg(f)\n y = Gemm<transB=1>(f, n)",
    "LayerNormalization": "s = Constant<value_floats=[1.0,1.0,1.0,1.0,1.0,1.0]>()\n"
    " b = Constant<value_floats=[0.0,0.0,0.0,0.0,0.0,0.0]>()\n y, m, d = LayerNormalization(x, s, b)",
    "MatMul": "n = Neg(x)\n y = MatMul(x, n)",
    "MaxPool": "y = MaxPool<kernel_shape=[2,2]>(x)",
    "Pad": "p = Constant<value_ints=[0,0,1,1,0,0,1,1]>()\n y = Pad(x, p)",
    "Pow": "e = Constant<value_float=1.7>()\n y = Pow(x, e)",
    "Reshape": "s = Constant<value_ints=[-1]>()\n y = Reshape(x, s)",
    "ScatterElements": "i = Constant<value=int64[1,1,1,1] {0}>()\n s = Constant<value_ints=[1,1,1,1]>()\n"
    " u = ConstantOfShape(s)\n y = ScatterElements(x, i, u)",
    "ScatterND": "i = Constant<value=int64[1,2] {0,1}>()\n s = Constant<value_ints=[1,6,6]>()\n"
    " u = ConstantOfShape(s)\n y = ScatterND(x, i, u)",
    "SimplifiedLayerNormalization": "s = Constant<value_floats=[1.0,1.0,1.0,1.0,1.0,1.0]>()\n"
    " y, v = SimplifiedLayerNormalization<axis=-1>(x, s)",
    "Slice": "a = Constant<value_ints=[1]>()\n b = Constant<value_ints=[3]>()\n y = Slice(x, a, b, a)",
    "SoftmaxCrossEntropyLoss": "f = Flatten(x)\n l = Constant<value_ints=[1,0]>()\n"
    " y, p = SoftmaxCrossEntropyLoss(f, l)",
    "Split": "a, b = Split<axis=1,num_outputs=2>(x)\n y = Add(a, b)",
    "Squeeze": "a = Constant<value_ints=[0]>()\n u = Unsqueeze(x, a)\n y = Squeeze(u, a)",
    "Tile": "r = Constant<value_ints=[1,2,1,1]>()\n y = Tile(x, r)",
    "TopK": "k = Constant<value_ints=[2]>()\n y, i = TopK(x, k)",
    "Unsqueeze": "a = Constant<value_ints=[0]>()\n y = Unsqueeze(x, a)",
    "Where": "z = Constant<value_float=0.0>()\n c = Greater(x, z)\n y = Where(c, x, z)",
    "com.microsoft::FastGelu": "y = com.microsoft.FastGelu(x)",
    "com.microsoft::Gelu": "y = com.microsoft.Gelu(x)",
    "com.microsoft::QuickGelu": "y = com.microsoft.QuickGelu(x)",
}
BINARY = {"Add", "Div", "Max", "Min", "Mul", "Sub"}
# Made by our passes in forms that their own tests cover, or of a later opset.
ELSEWHERE = {
    "Gelu",
    "com.microsoft::BatchNormInternal",
    "com.microsoft::FakeQuant",
    "com.microsoft::SoftmaxCrossEntropyLossInternal",
}


DIFFERENTIABLE = {o.qualified for o in records() if o.gradient.exists and o.domain != kernels.DOMAIN}


@pytest.mark.parametrize("operator", sorted(DIFFERENTIABLE - ELSEWHERE))
def test_the_table_of_gradients_is_true(operator: str) -> None:
    plain = f"n = Neg(x)\n y = {operator}(x, n)" if operator in BINARY else f"y = {operator}(x)"
    build_gradients(model(BODIES.get(operator, plain)))


@pytest.mark.parametrize("operator", ["Det", "Hardmax", "ReduceProd", "Elu", "Shrink", "GlobalMaxPool"])
def test_the_table_of_gradients_is_complete(operator: str) -> None:
    found = lookup("", operator)
    assert found is not None
    assert not found.gradient.exists
    with pytest.raises(FuselineError, match="has not been registered"):
        build_gradients(model(f"y = {operator}(x)"))
