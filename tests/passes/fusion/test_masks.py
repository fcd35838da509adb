"""Attention with every style of mask gives what it gave before: full rows, left padding, any integers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.runtime import session
from fuseline.tools.campaigns.fuzz.cases import Case
from fuseline.tools.campaigns.fuzz.training.judging import judge_training

BODY = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,S,2,8] q, float[N,S,2,8] k, float[N,S,2,8] v, {mask}) => (float[N,S,2,8] y)
<float scale = {{0.25}}, float zero = {{0}}, float one = {{1}}, float low = {{{low}}},
 int64[2] two = {{1, 2}}> {{
    q4 = Transpose<perm=[0,2,1,3]>(q)
    k4 = Transpose<perm=[0,2,3,1]>(k)
    v4 = Transpose<perm=[0,2,1,3]>(v)
    d = MatMul(q4, k4)
    t = Mul(d, scale)
    {masked}
    p = Softmax<axis=-1>(m)
    {guarded}
    o = MatMul(w, v4)
    y = Transpose<perm=[0,2,1,3]>(o)
}}"""
INTEGERS = "u = Unsqueeze(mask, two) f = Cast<to=1>(u) i = Sub(one, f) b = Mul(i, low) m = Add(t, b)"
CHOICE = "m = Where(mask, t, low)"
ADDED = "b = Where(mask, zero, low) m = Add(t, b)"
PLAIN, GUARDED = "w = Identity(p)", "n = IsNaN(p) w = Where(n, zero, p)"
MIN, OLD = "-3.4028234663852886e38", "-10000"
STYLES = {
    "integers": ("int64[N,S] mask", INTEGERS, PLAIN, MIN),
    "integers of old": ("int64[N,S] mask", INTEGERS, PLAIN, OLD),
    "replaced": ("bool[N,1,S,S] mask", CHOICE, PLAIN, MIN),
    "replaced by little": ("bool[N,1,S,S] mask", CHOICE, PLAIN, OLD),
    "replaced by infinity": ("bool[N,1,S,S] mask", CHOICE, PLAIN, "-inf"),
    "replaced and guarded": ("bool[N,1,S,S] mask", CHOICE, GUARDED, "-inf"),
    "added": ("bool[N,1,S,S] mask", ADDED, PLAIN, MIN),
    "added infinity, guarded": ("bool[N,1,S,S] mask", ADDED, GUARDED, "-inf"),
}


def text(style: str) -> Model:
    mask, masked, guarded, low = STYLES[style]
    found = Model.from_text(
        BODY.format(mask=mask, masked=masked, guarded=guarded, low="0" if low == "-inf" else low)
    )
    if low == "-inf":
        import onnx_ir as ir

        found.graph.initializers["low"].const_value = ir.tensor(np.array(-np.inf, np.float32), name="low")
    return found


def masks(style: str) -> list[np.ndarray]:
    left, nothing, right = [0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]
    if STYLES[style][0].startswith("int64"):
        return [np.array([left, row]) for row in (right, nothing, [2, 1, 0, 1], [-1, 1, 1, 0])]
    causal = np.tril(np.ones((4, 4), bool))
    return [
        np.stack([np.array(row, bool)[None] & causal for row in (left, other)])[:, None]
        for other in (right, nothing)
    ]


@pytest.mark.parametrize("style", STYLES)
def test_a_mask_gives_what_it_gave(style: str) -> None:
    model = text(style)
    made = Pipeline.parse("infer-shapes,eliminate-identity,fuse-attention").run(model).model
    generator = np.random.default_rng(0)
    fed = {n: generator.standard_normal((2, 4, 2, 8)).astype(np.float32) for n in "qkv"}
    for mask in masks(style):
        before, after = (session(m).run(None, {**fed, "mask": mask})[0] for m in (model, made))
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    fused = any(n.op_type == "MultiHeadAttention" for n in made.nodes())
    assert fused == (style != "replaced by little")


def learning(style: str) -> onnx.ModelProto:
    """The same behind weights for queries, keys and values, with a loss of what comes out."""
    model = text(style).to_proto()
    nodes = list(model.graph.node)
    for fed in model.graph.input:
        fed.name = f"{fed.name}0" if fed.name in "qkv" else fed.name
    draw = np.random.default_rng(1)
    for name in "qkv":
        weight = draw.standard_normal(8).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{name}"))
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(helper.make_node("Mul", [f"{n}0", f"w{n}"], [n]) for n in "qkv")
    model.graph.node.extend(nodes)
    model.graph.node.append(helper.make_node("Sin", ["y"], ["waves"]))
    model.graph.node.append(helper.make_node("ReduceSum", ["waves"], ["loss"], keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, []))
    return model


@pytest.mark.native
@pytest.mark.parametrize("style", [s for s in STYLES if STYLES[s][3] != "-inf"])
def test_gradients_under_a_mask_are_torch_s(style: str) -> None:
    """Of left padding, rows that see nothing, and integers other than 0 and 1."""
    draw = np.random.default_rng(0)
    fed = {f"{n}0": draw.standard_normal((2, 4, 2, 8)).astype(np.float32) for n in "qkv"}
    feeds = [{**fed, "mask": mask} for mask in masks(style)]
    case = Case(learning(style).SerializeToString(), feeds, "training", style, ("wq", "wk", "wv"))
    verdict = judge_training(case)
    assert (verdict.status, verdict.sets) == ("ok", len(feeds)), verdict.message
    assert "fuse-attention-training" in verdict.fired
