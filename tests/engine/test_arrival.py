"""Models that are invalid when they come: said in one message, never written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline

OPSET = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
FUNCTION = OPSET + "g (float[N] x) => (float[N] y) { y = own.f(x) }\n"
INVALID = {
    "an attribute that is unknown": ("y = Relu<slope = 1>(x)", "Relu of opset 17 has no attribute 'slope'"),
    "an attribute of another kind": ('y = Softmax<axis = "last">(x)', "has 'axis' as STRING, not as INT"),
    "an attribute that is missing": ("y = Cast(x)", "Cast of opset 17 lacks its attribute 'to'"),
    "too many inputs": ("y = Neg(x, x)", "has 2 inputs, but takes 1"),
    "too few inputs": ("y = Add(x)", "has 1 input, but takes 2"),
    "an older form": ("y = Squeeze<axes = [0]>(x)", "Squeeze of opset 17 has no attribute 'axes'"),
    "two element types": ("y = Add(x, i)", r"mixes FLOAT \('A'\) and INT64 \('B'\)"),
    "two element types further on": ("a = Relu(x) b = Neg(a) y = Add(b, i)", "mixes FLOAT"),
    "an element type without the operator": (
        "a = Not(x) y = Cast<to = 1>(a)",
        "Not of opset 17 takes no FLOAT",
    ),
    "a wrong declaration": ("y = Shape(x)", "'Shape_0': Shape of opset 17 takes no FLOAT as 'shape'"),
    "an operator that was taken out": ("y = Upsample(x, x)", "'Upsample' is no longer there in opset 17"),
    "a fault that nobody reads": ("y = Neg(x) z = Relu<slope = 1>(x)", "has no attribute 'slope'"),
    "a fault in a branch": (
        "y = If(c)<then_branch = t () => (float[N] a) { a = Relu<slope = 1>(x) },"
        " else_branch = e () => (float[N] b) { b = Neg(x) }>",
        "has no attribute 'slope'",
    ),
    "a branch that returns what is made outside": (
        "a = Neg(x) y = If(c)<then_branch = t () => (float[N] a) {},"
        " else_branch = e () => (float[N] b) { b = Neg(x) }>",
        "output 'a' of 't' is produced by nothing",
    ),
}
FUNCTIONS = {
    "a fault": ("f (a) => (b) { b = Relu<slope = 1>(a) }", 17, "'slope'"),
    "too few inputs": ("f () => (b) { b = Constant<value_float = 1.0>() }", 17, "but the function 'f' 0"),
    "a circle": ("f (a) => (b) { b = own.f(a) }", 17, "calls itself"),
    "an opset that the model cannot read": (
        "f (a) => (b) { b = Unsqueeze<axes = [0]>(a) }",
        11,
        "Unsqueeze of opset 17 has",
    ),
}


def _file(tmp_path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("what", INVALID)
def test_faults_are_named(tmp_path: Path, what: str) -> None:
    nodes, message = INVALID[what]
    text = f"g (float[N] x, int64[N] i, bool c) => (float[N] y) {{ {nodes} }}"
    path = _file(tmp_path, OPSET + text)
    with pytest.raises(Exception, match=r"(?i)invalid|Type Error"):  # the runtime agrees
        onnxruntime.InferenceSession(path)
    with pytest.raises(ModelError, match=message):
        Model.load(path)


@pytest.mark.parametrize("what", FUNCTIONS)
def test_faults_of_functions_are_named(tmp_path: Path, what: str) -> None:
    body, opset, message = FUNCTIONS[what]
    head = f'<domain: "own", opset_import: ["" : {opset}, "own" : 1]>'
    with pytest.raises(ModelError, match=message):
        Model.load(_file(tmp_path, FUNCTION + head + body))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ('ir_version: 99, opset_import: ["" : 17]', "is of IR version 99"),
        ('ir_version: 8, opset_import: ["" : 99]', "is of opset 99"),
        ('ir_version: 8, opset_import: ["own" : 1]', "of which no version is imported"),
    ],
)
def test_versions_that_nobody_knows(tmp_path: Path, head: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Model.load(_file(tmp_path, f"<{head}>\ng (float[N] x) => (float[N] y) {{ y = Neg(x) }}"))


def test_constants_of_old_opsets_may_be_of_any_type(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[1,2] y) { s = Constant<value = int64[2] {1, 2}>() y = Reshape(x, s) }"
    path = _file(tmp_path, f'<ir_version: 8, opset_import: ["" : 7]>\n{text}')
    onnxruntime.InferenceSession(path)
    Model.load(path)


def test_inputs_of_one_name() -> None:
    with pytest.raises(ModelError, match="has two inputs 'x'"):
        Model.from_text(OPSET + "g (float[N] x, float[N] x) => (float[N] y) { y = Neg(x) }")


@pytest.mark.parametrize("operator", ["com.microsoft.Gelu", "ai.onnx.ml.Normalizer"])
def test_a_domain_that_is_not_imported_is_put_right(tmp_path: Path, operator: str) -> None:
    text = f"g (float[N,2] x) => (float[N,2] y) {{ a = {operator}(x) y = Identity(a) }}"
    path = _file(tmp_path, f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    made = Pipeline.resolve("simplify-for-training").run(Model.load(path)).model
    assert operator.rpartition(".")[0] in made.graph.opset_imports
    made.save(tmp_path / "made.onnx")
    x = np.array([[1, 2], [-3, 4]], np.float32)
    before, after = (
        onnxruntime.InferenceSession(p).run(None, {"x": x})[0] for p in (path, tmp_path / "made.onnx")
    )
    np.testing.assert_array_equal(before, after)


def test_functions_are_put_in_place_before_the_opset_is_converted() -> None:
    body = '<domain: "own", opset_import: ["" : 17]> f (a) => (b) { b = Neg(a) }'
    made = Pipeline.resolve("simplify-for-training").run(Model.from_text(FUNCTION + body)).model
    assert [node.op_type for node in made.nodes()] == ["Neg"]
    assert made.opset() == 18


def test_a_model_made_invalid_in_python_is_not_written(tmp_path: Path) -> None:
    model = Model.from_text(OPSET + "g (float[N] x) => (float[N] y) { y = Relu(x) }")
    next(iter(model.graph)).attributes.add(ir.AttrInt64("slope", 1))
    with pytest.raises(ModelError, match="has no attribute 'slope'"):
        model.save(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
