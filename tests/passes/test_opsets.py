"""Passes write what a model's opset has: from 7 to the newest, what loads before them loads after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.runtime import session

OPSETS = (7, 9, 10, 11, 12, 13, 15, 18, 21)
SELECT = """<ir_version: 7, opset_import: ["" : {opset}]>
g (float[N,S,4] x, float[4,4] w) => (float[N,4] y) <int64 first = {{0}}> {{
    h = MatMul(x, w)
    r = Relu(h)
    y = Gather<axis=1>(r, first)
}}"""
ATTENTION = """<ir_version: 7, opset_import: ["" : {opset}]>
g (float[N,S,2,8] x, bool[N,1,1,S] keep, float[2,2] w) => (float[N,S,2,8] y)
<float scale = {{0.25}}, float zero = {{0}}, float low = {{-3.4e38}}> {{
    q = Transpose<perm=[0,2,1,3]>(x)
    k = Transpose<perm=[0,2,3,1]>(x)
    d = MatMul(q, k)
    t = Mul(d, scale)
    b = Where(keep, zero, low)
    m = Add(t, b)
    p = Softmax<axis=3>(m)
    o = MatMul(p, q)
    y = Transpose<perm=[0,2,1,3]>(o)
}}"""
FED = {
    "select": (SELECT, {"x": np.ones((2, 3, 4), np.float32), "w": np.eye(4, dtype=np.float32)}),
    "attention": (
        ATTENTION,
        {
            "x": np.random.default_rng(0).standard_normal((2, 3, 2, 8)).astype(np.float32),
            "keep": np.array([[1, 1, 0], [0, 1, 1]], bool)[:, None, None],
            "w": np.eye(2, dtype=np.float32),
        },
    ),
}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", FED)
def test_what_is_written_loads_in_any_opset(name: str, opset: int, tmp_path: Path) -> None:
    text, fed = FED[name]
    if name == "attention" and opset < 9:
        pytest.skip("Where is new in opset 9")
    model = Model.from_text(text.format(opset=opset))
    made = Pipeline.resolve("inference-O3").run(model).model
    made.save(tmp_path / "made.onnx")
    made = Model.load(tmp_path / "made.onnx")
    before, after = (session(m).run(None, fed)[0] for m in (model, made))
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


def test_a_norm_older_than_onnx_has_it_is_read_again(tmp_path: Path) -> None:
    text = """<ir_version: 7, opset_import: ["" : 13]>
    g (float[N,4] x) => (float[N,4] y) <float e = {1e-5}, float[4] w = {1, 2, 3, 4}> {
        m = ReduceMean<axes=[-1]>(x)  c = Sub(x, m)  q = Mul(c, c)  v = ReduceMean<axes=[-1]>(q)
        s = Add(v, e)  r = Sqrt(s)  n = Div(c, r)  y = Mul(n, w)
    }"""
    made = Pipeline.resolve("inference-O2").run(Model.from_text(text)).model
    assert [n.op_type for n in made.nodes()] == ["LayerNormalization"]
    made.save(tmp_path / "made.onnx")
    assert [n.op_type for n in Model.load(tmp_path / "made.onnx").nodes()] == ["LayerNormalization"]
