"""Graphs on which a pipeline once went wrong, as small as the fuzzer made them: loadable and equal now."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import fuseline.passes  # noqa: F401
from fuseline.tools.campaigns.fuzz.cases import Case
from fuseline.tools.campaigns.fuzz.judge import judge

SIZES = {"N": (3, 1, 0), "S": (5, 1, 2), **{n: (s,) * 3 for n, s in zip("abcd", (2, 2, 3, 4), strict=True)}}

FOUND = {
    "an integer output folded before Constant had integers": (
        "fold-constants",
        """<ir_version: 8, opset_import: ["" : 7]>
        g () => (int64[1,1] y) <int64[1,1] c = {0}> { y = Transpose<perm = [1, 0]>(c) }""",
    ),
    "a scalar transposed": (
        "fold-constants",
        """<ir_version: 8, opset_import: ["" : 15]>
        g () => (int64 y) { c = Constant<value = float[2] {1, 2}>() s = Size(c) y = Transpose(s) }""",
    ),
    "strings that need no size": (
        "inference-O1",
        """<ir_version: 8, opset_import: ["" : 15]>
        g (float[N] x) => (string[2] y, float[N] z)
        { c = Constant<value = string[2] {"a", "b"}>() y = Identity(c) z = Neg(x) }""",
    ),
    "a name that promises nothing behind a pool": (
        "infer-shapes,infer-shapes",
        """<ir_version: 9, opset_import: ["" : 13]>
        g (float[unk__86,2,2,unk__38] x) => (float[a,b,c,d] y)
        { p = AveragePool<kernel_shape = [2, 2]>(x) y = Elu(p) }""",
    ),
    "a sequence, which has no shape": (
        "infer-shapes,infer-shapes",
        """<ir_version: 8, opset_import: ["" : 16]>
        g (float[N,2] x) => (float[N,2] y) <int64 first = {0}>
        { s = SequenceConstruct(x, x) t = Identity(s) n = SequenceAt(t, first) y = Neg(n) }""",
    ),
    "an RMS norm of 64-bit floats without a scale": (
        "inference-O2",
        """<ir_version: 8, opset_import: ["" : 10]>
        g (double[N,S,4] x) => (double[N,S,4] y) <double e = {1e-5}>
        { q = Mul(x, x) m = ReduceMean<axes = [2]>(q) a = Add(m, e) r = Sqrt(a) y = Div(x, r) }""",
    ),
    "an RMS norm of 16-bit floats without a scale": (
        "inference-O2",
        """<ir_version: 8, opset_import: ["" : 12]>
        g (float16[N,S,4] x) => (float16[N,S,4] y) <float16 e = {168}>
        { q = Mul(x, x) m = ReduceMean<axes = [2]>(q) a = Add(m, e) r = Sqrt(a) y = Div(x, r) }""",
    ),
    "an epsilon that adds a dimension": (
        "inference-O2",
        """<ir_version: 8, opset_import: ["" : 13]>
        g (float[N,S,4] x) => (float[a,b,c,d] y) <float[1,1,1,1] e = {1e-5}, float[4] w = {1, 2, 3, 4}>
        { q = Mul(x, x) m = ReduceMean<axes = [2]>(q) a = Add(m, e) r = Sqrt(a) n = Div(x, r)
          y = Mul(n, w) }""",
    ),
    "a factor that adds a dimension": (
        "inference-O2",
        """<ir_version: 8, opset_import: ["" : 13]>
        g (float[N,S,4] x, float[4,2] w) => (float[a,b,c,d] y) <float[1,1,1,1] f = {0.5}>
        { p = MatMul(x, w) y = Mul(p, f) }""",
    ),
    "a layer norm of 16-bit floats in an old opset": (
        "inference-O2",
        """<ir_version: 8, opset_import: ["" : 10]>
        g (float16[N,S,4] x) => (float16[N,S,4] y)
        <float16 e = {168}, float16[4] w = {15360, 15360, 15360, 15360}>
        { m = ReduceMean<axes = [2]>(x) c = Sub(x, m) q = Mul(c, c) v = ReduceMean<axes = [2]>(q)
          a = Add(v, e) r = Sqrt(a) n = Div(c, r) y = Mul(n, w) }""",
    ),
    "a residual sum with a bias and an RMS norm": (
        "inference-O3",
        """<ir_version: 8, opset_import: ["" : 13]>
        g (float[N,S,4] x, float[N,S,4] z) => (float[N,S,4] y)
        <float e = {1e-5}, float[4] w = {1, 2, 3, 4}, float[4] b = {4, 2, 3, 1}>
        { k = Add(x, b) s = Add(k, z) q = Mul(s, s) m = ReduceMean<axes = [-1]>(q) a = Add(m, e) r = Sqrt(a)
          n = Div(s, r) y = Mul(n, w) }""",
    ),
    "a residual sum and a layer norm with a bias of rank 3": (
        "inference-O2",
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[N,S,2] x, float[N,S,2] z) => (float[N,S,2] y) <float[2] w = {1, 2}, float[1,1,2] b = {1, 2}>
        { s = Add(x, z) y = LayerNormalization<axis = -1>(s, w, b) }""",
    ),
    "the least of nothing": (
        "fold-constants",
        """<ir_version: 8, opset_import: ["" : 17]>
        g () => (int64[1] y) <int64 c = {1}> { s = Shape(c) y = ReduceMax<axes = [-1]>(s) }""",
    ),
    "attention to keys of unknown heads": (
        "infer-shapes,fuse-attention",
        """<ir_version: 8, opset_import: ["" : 13]>
        g (float[2,2,5,4] q, float[a,b,c,d] k, float[2,2,3,4] v) => (float[2,2,5,4] y) <float[1] f = {0.5}>
        { s = Mul(q, f) t = Transpose<perm = [0, 1, 3, 2]>(k) p = MatMul(s, t) w = Softmax<axis = -1>(p)
          y = MatMul(w, v) }""",
    ),
    "embeddings with a bias of rank 3": (
        "inference-O3",
        """<ir_version: 8, opset_import: ["" : 18]>
        g (int64[N,S] i, int64[N,S] j) => (float[N,S,2] y)
        <float[2,2] t = {1, 2, 3, 4}, float[2,2] p = {1, 0, 2, 5}, float[2] w = {1, 2},
         float[1,1,2] b = {1, 2}>
        { a = Gather<axis = 0>(t, i) c = Gather<axis = 0>(p, j) s = Add(a, c)
          y = LayerNormalization<axis = -1>(s, w, b) }""",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_once_wrong_is_right(name: str) -> None:
    pipeline, text = FOUND[name]
    model = onnx.parser.parse_model(text)
    draw = np.random.default_rng(0)
    feeds = []
    for turn in range(3):
        feed = {}
        for value in model.graph.input:
            tensor = value.type.tensor_type
            shape = [d.dim_value or SIZES.get(d.dim_param, (2, 3, 4))[turn] for d in tensor.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            drawn = draw.integers(0, 2, shape) if dtype.kind == "i" else draw.standard_normal(shape)
            feed[value.name] = np.asarray(drawn).astype(dtype)
        feeds.append(feed)
    verdict = judge(Case(model.SerializeToString(), feeds, pipeline, name))
    assert verdict.status == "ok", verdict
    assert verdict.sets
