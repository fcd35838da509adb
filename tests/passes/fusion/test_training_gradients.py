"""The training fusions keep the gradients: fused and plain graph are differentiated and compared."""

from __future__ import annotations

import numpy as np
import pytest

from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property
from fuseline.engine.runtime import run, session

pytestmark = pytest.mark.native

ATTENTION = """
    tq = Transpose<perm = [1,0]>(wq)
    tk = Transpose<perm = [1,0]>(wk)
    tv = Transpose<perm = [1,0]>(wv)
    q0 = MatMul(x, tq)
    q1 = Add(q0, bq)
    k0 = MatMul(x, tk)
    k1 = Add(k0, bk)
    v0 = MatMul(x, tv)
    v1 = Add(v0, bv)
    q2 = Reshape(q1, heads)
    k2 = Reshape(k1, heads)
    v2 = Reshape(v1, heads)
    q = Transpose<perm = [0,2,1,3]>(q2)
    k = Transpose<perm = [0,2,3,1]>(k2)
    v = Transpose<perm = [0,2,1,3]>(v2)
    s = MatMul(q, k)
    t = Mul(s, scale)
    m = Add(t, mask)
    p = Softmax<axis = -1>(m)
    o = MatMul(p, v)
    u = Transpose<perm = [0,2,1,3]>(o)
    y = Reshape(u, merged)
"""
RMS = """
    h = Mul(x, wq1)
    p = Pow(h, two)
    n = ReduceMean<keepdims = 1>(p, axes)
    e = Add(n, epsilon)
    r = Sqrt(e)
    i = Reciprocal(r)
    z = Mul(h, i)
    y = Mul(z, bq)
"""
SWIGLU = """
    g = Mul(x, bq)
    a = Mul(x, bk)
    c = Sigmoid(g)
    d = Mul(g, c)
    y = Mul(d, a)
"""
SETTINGS = (
    "int64[4] heads = {0,0,2,4}, int64[3] merged = {0,0,8}, float scale = {0.5}, float two = {2}, "
    "float epsilon = {0.000001}, int64[1] axes = {-1}"
)
WEIGHTS = {"wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "bq": (8,), "bk": (8,), "bv": (8,), "wq1": (8,)}


def _model(body: str) -> Model:
    random = np.random.default_rng(0)
    used = {n: s for n, s in WEIGHTS.items() if f"{n})" in body}
    rows = []
    for name, shape in used.items():
        numbers = ",".join(f"{v:.4f}" for v in random.normal(size=shape).ravel())
        rows.append(f"float[{','.join(map(str, shape))}] {name} = {{{numbers}}}")
    model = Model.from_text(
        f"""<ir_version: 10, opset_import: ["" : 18]>
        g (float[2,5,8] x, float[2,1,5,5] mask) => (float loss) <{SETTINGS}, {", ".join(rows)}> {{
        {body}
        w = Sin(y)
        loss = ReduceSum<keepdims = 0>(w) }}"""
    )
    for name, shape in used.items():
        model.parameters.add(Parameter(name, name, shape))
    model.establish(Property.TRAINING)
    return model


def _gradients(model: Model) -> dict[str, np.ndarray]:
    """Gradients under the original names, whatever became of the parameters."""
    built = Pipeline.parse("differentiate").run(model).model
    random = np.random.default_rng(1)
    feeds = {
        "x": random.normal(size=(2, 5, 8)).astype(np.float32),
        "mask": np.where(random.random((2, 1, 5, 5)) < 0.3, -1e9, 0).astype(np.float32),
        "loss_grad": np.float32(1),
    }
    found = run(session(built, threads=1), feeds)
    raw = {k.removesuffix("_grad"): v for k, v in found.items() if k.endswith("_grad")}
    return built.parameters.from_graph(raw)


@pytest.mark.parametrize(
    ("body", "passes", "made"),
    [
        (ATTENTION, "fuse-attention-training", "FusedAttention"),
        (ATTENTION, "fuse-attention-training,fuse-qkv-training", "FusedAttentionPacked"),
        (RMS, "fuse-rms-norm-training", "FusedRmsNorm"),
        (SWIGLU, "fuse-swiglu-training", "FusedSwiGlu"),
    ],
)
def test_gradients_stay(body: str, passes: str, made: str) -> None:
    plain = Pipeline.parse("infer-shapes").run(_model(body)).model
    fused = Pipeline.parse(f"{passes},remove-unused").run(plain).model
    assert made in {node.op_type for node in fused.nodes()}
    mended = Pipeline.parse("resolve-pow").run(plain).model
    expected, actual = _gradients(mended), _gradients(fused)
    assert sorted(actual) == sorted(expected)
    for name, gradient in expected.items():
        np.testing.assert_allclose(actual[name], gradient, rtol=2e-4, atol=2e-5, err_msg=name)


def test_an_inference_fusion_is_refused_with_its_counterpart() -> None:
    from fuseline.engine.errors import PassError

    with pytest.raises(PassError, match="use 'fuse-attention-training' instead"):
        Pipeline.parse("fuse-attention").run(_model(ATTENTION))
