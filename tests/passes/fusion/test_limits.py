"""Where a fusion has to stay out, or to bring something with it: types, ranks, functions, captures."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.runtime import session

TYPES = {"float": np.float32, "double": np.float64, "float16": np.float16, "int32": np.int32}
CASES = {
    "fuse-matmul-transpose": "t = Transpose<perm=[1,0]>(b) y = MatMul(a, t)",
    "fuse-matmul-scale": "m = MatMul(a, b) f = CastLike(two, m) y = Mul(m, f)",
    "fuse-matmul-add": "m = MatMul(a, b) y = Add(m, c)",
    "fuse-gemm-activation": "m = Gemm(a, b, c) y = Relu(m)",
    "fuse-fast-gelu": 'y = Gelu<approximate="tanh">(a)',
    "fuse-gelu": "y = Gelu(a)",
    "fuse-quick-gelu": "s = Sigmoid(a) y = Mul(a, s)",
    "fuse-skip-layer-norm": "s = Add(a, b) y = LayerNormalization<axis=-1>(s, c)",
    "fuse-rms-norm": (
        "s = Mul(a, a) ax = Constant<value=int64[1] {-1}>() m = ReduceMean(s, ax) e = CastLike(tiny, a) "
        "v = Add(m, e) r = Sqrt(v) y = Div(a, r)"
    ),
    "fuse-softmax": "y = Softmax<axis=-1>(a)",
}


def loads(model: Model) -> bool:
    try:
        session(model)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CASES)
def test_what_loads_before_a_fusion_loads_after_it(name: str, dtype: str) -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 20]>\n'
        f"g ({dtype}[4,4] a, {dtype}[4,4] b, {dtype}[4] c) => ({dtype}[4,4] y) "
        f"<float two = {{2}}, float tiny = {{0.001}}> {{ {CASES[name]} }}"
    )
    try:
        model = Model.from_text(text)
    except ModelError as refused:
        pytest.skip(str(refused))
    if not loads(model):
        pytest.skip("the runtime has no kernels for the graph itself")
    made = Pipeline.parse(f"infer-shapes,fold-constants,resolve-cast-like,{name}").run(model).model
    session(made)


def test_a_function_imports_the_domain_of_what_is_fused_in_it() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        g (float[4] x) => (float[4] y) { y = own.act(x) }
        <domain: "own", opset_import: ["" : 20]>
        act (a) => (b) { b = Gelu(a) }"""
    made = Pipeline.parse("fuse-gelu").run(Model.from_text(text)).model
    [function] = made.ir.functions.values()
    assert [n.domain for n in function] == ["com.microsoft"]
    assert "com.microsoft" in function.opset_imports
    before, after = (
        session(m).run(None, {"x": np.arange(4, dtype=np.float32)}) for m in (Model.from_text(text), made)
    )
    np.testing.assert_allclose(before[0], after[0], rtol=1e-6)


@pytest.mark.parametrize("rank, fused", [(0, True), (1, True), (2, True), (3, False), (4, False)])
def test_a_factor_with_more_axes_than_the_product_is_no_number(rank: int, fused: bool) -> None:
    shape = ",".join("1" * rank)
    ranks = f"float[{shape}]" if rank else "float"
    text = (
        '<ir_version: 10, opset_import: ["" : 20]>\n'
        f"g (float[2,4] a, float[4,3] b) => (float[{'1,' * max(rank - 2, 0)}2,3] y) <{ranks} f = {{2}}> "
        "{ m = MatMul(a, b) y = Mul(m, f) }"
    )
    model = Model.from_text(text)
    made = Pipeline.parse("infer-shapes,fuse-matmul-scale").run(model).model
    assert any(n.op_type == "FusedMatMul" for n in made.nodes()) == fused
    onnx.checker.check_model(model.to_proto())


CYCLE = """<ir_version: 10, opset_import: ["" : 20]>
g (float[2,4] x, float[2,4] skip, bool c, float[4] one) => (float[2,4] y) {
    s = Add(x, skip)
    scale = If(c) <
        then_branch = t () => (float[4] p) {
            ax = Constant<value = int64[1] {0}>()
            p = ReduceMean<keepdims=0>(s, ax)
        },
        else_branch = e () => (float[4] q) { q = Identity(one) }>
    y = LayerNormalization<axis=-1>(s, scale)
}"""


def test_what_a_branch_captures_makes_no_cycle() -> None:
    made = Pipeline.resolve("inference-O2").run(Model.from_text(CYCLE)).model
    fed = {
        "x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32),
        "skip": np.ones((2, 4), np.float32),
        "c": np.array(True),
        "one": np.ones(4, np.float32),
    }
    before, after = (session(m).run(None, fed)[0] for m in (Model.from_text(CYCLE), made))
    np.testing.assert_allclose(before, after, rtol=1e-5)
