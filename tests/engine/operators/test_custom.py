"""An operator of one's own, declared once: every part of the project knows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from fuseline import Model, Pipeline
from fuseline.engine.errors import FuselineError, ModelError
from fuseline.engine.operators import Trait, custom, libraries, lookup, record, register
from fuseline.engine.operators.gradient import GradientNode
from fuseline.engine.operators.operator import Operator
from fuseline.engine.operators.registry import forget
from fuseline.engine.runtime import session
from fuseline.engine.shapes.dims import dims_of

SWISH = custom(
    "test.own",
    "ScaledSwish",
    "x, shift?",
    "y",
    attributes={"scale": 1.0},
    shape="x",
    reference=lambda x, shift=0, *, scale: scale * (x + shift) / (1 + np.exp(-x - shift)),
    library=lambda: None,
)
TEXT = """
<ir_version: 9, opset_import: ["" : 18, "test.own" : 1]>
g (float[N,2] x) => (float[N,2] y) <float[2] w = {0, 1}> {
  a = test.own.ScaledSwish <scale = 2.0> (x)
  b = test.own.ScaledSwish <scale = 2.0> (x)
  c = test.own.ScaledSwish <scale = 4.0> (w)
  d = Add(a, b)
  y = Add(d, c)
}
"""


@pytest.fixture
def known() -> Iterator[None]:
    register(SWISH)
    yield
    forget(SWISH)


@pytest.mark.usefixtures("known")
def test_every_pass_knows_it() -> None:
    model = Model.from_text(TEXT)
    pipeline = Pipeline.parse("infer-shapes,fold-constants,eliminate-common-subexpressions,remove-unused")
    made = pipeline.run(model).model
    [swish] = [n for n in made.nodes() if n.op_type == "ScaledSwish"]
    assert dims_of(swish.outputs[0]) == ("N", 2)
    assert swish.outputs[0].dtype == ir.DataType.FLOAT
    folded = made.graph.initializers["c"].const_value
    assert folded is not None
    np.testing.assert_allclose(folded.numpy(), [0, 4 / (1 + np.exp(-1))])


def test_unknown_operators_are_left_alone() -> None:
    model = Model.from_text(TEXT)
    made = Pipeline.parse("fold-constants,eliminate-common-subexpressions,remove-unused").run(model).model
    assert sum(n.op_type == "ScaledSwish" for n in made.nodes()) == 3


@pytest.mark.usefixtures("known")
def test_twice_is_an_error() -> None:
    with pytest.raises(
        FuselineError, match=r"test\.own::ScaledSwish is registered twice: in .*test_custom.py:\d+"
    ):
        register(SWISH)


def test_a_random_operator_is_not_merged() -> None:
    noise = custom("test.own", "Noise", "x", "y", shape="x", traits=Trait.RANDOM)
    assert not noise.pure


def test_libraries_that_exist_reach_every_session(tmp_path: Path) -> None:
    built = tmp_path / "libown.so"
    operator = custom("test.own", "Native", "x, i: int64", "y", library=built)
    register(operator)
    try:
        assert built not in libraries()
        built.touch()
        assert built in libraries()
    finally:
        forget(operator)


@pytest.mark.usefixtures("known")
def test_an_operator_without_a_kernel_is_named() -> None:
    with pytest.raises(ModelError, match=r"of test\.own::ScaledSwish no kernel is there"):
        session(Model.from_text(TEXT))


def test_a_wrong_shape_is_named() -> None:
    with pytest.raises(FuselineError, match="shape of 'z', which is no input of it"):
        custom("test.own", "Bad", "x", "y", shape="z")
    with pytest.raises(FuselineError, match="needs a domain of its own"):
        custom("", "Bad", "x", "y")


def test_both_names_of_the_standard_domain() -> None:
    assert lookup("ai.onnx", "Add") is lookup("", "Add") is not None
    assert record(ir.node("NoSuchOperator", [])) is None


WRONG_DECLARATIONS = {
    "'soft swish' is no name for an operator": {"name": "soft swish"},
    "has no outputs": {"outputs": " "},
    "is declared wrongly: .* is not an accepted attribute value": {"attributes": {"scale": object()}},
    "neither the name of an input nor a rule": {"shape": (2, 3)},
    r"cannot be called with \(x\): missing a required argument: 'scale'": {"reference": lambda x, scale: x},
    r"reference .*test_custom.py:\d+ cannot be called with \(x, bias\)": {
        "inputs": "x, bias?",
        "reference": lambda x: x,
    },
    r"shape rule .* cannot be called with \(site\)": {"shape": lambda: None},
    "is 5, which is no function": {"reference": 5},
    "takes no types at all": {"types": ()},
    "has the port 'x' twice": {"inputs": "x, x"},
    "'' is no port": {"inputs": "x,, z"},
    "the inputs of an operator is a text": {"inputs": ["x"]},
    "'a b' is no name for an attribute": {"attributes": {"a b": 1}},
    "the traits of test.own::Wrong are 'elementwise'": {"traits": "elementwise"},
    "is 5, neither a path": {"library": 5},
    "the gradient of test.own::Wrong holds 'Neg'": {"gradient": ["Neg"]},
    r"reads 'I\(1\)', which nothing makes": {"gradient": [GradientNode("Mul", ("GO(0)", "I(1)"))]},
    r"makes 'GI\(1\)', which is no input's": {"gradient": [GradientNode("Neg", ("GO(0)",), ("GI(1)",))]},
    "needs a domain of its own": {"domain": "ai.onnx.ml", "name": "Scaler"},
}


@pytest.mark.parametrize("message", WRONG_DECLARATIONS)
def test_a_wrong_declaration_is_refused_at_once(message: str) -> None:
    given: dict[str, Any] = {"domain": "test.own", "name": "Wrong", "inputs": "x", "outputs": "y"}
    with pytest.raises(FuselineError, match=message):
        custom(**(given | WRONG_DECLARATIONS[message]))


WRONG_ANSWERS: dict[str, dict[str, Any]] = {
    r"the shape rule of test.own::Wrong at .* gave .* for 1 output": {"shape": lambda site: [(None, "abc")]},
    r"gave \[\] for 1 output": {"shape": lambda site: []},
    r"gave 2 arrays for 1 output": {"shape": "x", "reference": lambda x: (x, x)},
    r"gave int64, but its output is float32": {"shape": "x", "reference": lambda x: x.astype(np.int64)},
    r"gave \[1\], its shape rule something else": {"shape": "x", "reference": lambda x: x[:1]},
    r"test_custom.py:\d+: ValueError: output array is read-only": {
        "shape": "x",
        "reference": lambda x: np.negative(x, out=x),
    },
    r"gave None, which is no array": {"shape": "x", "reference": lambda x: None},
}


@pytest.mark.parametrize("message", WRONG_ANSWERS)
def test_what_contradicts_the_declaration_is_an_error(message: str) -> None:
    with _registered(custom("test.own", "Wrong", "x", "y", **WRONG_ANSWERS[message])):
        model = Model.from_text(_ALONE.replace("OP", "Wrong"))
        with pytest.raises(FuselineError, match=message):
            Pipeline.parse("infer-shapes,fold-constants").run(model)


@pytest.mark.parametrize(
    ("ports", "fault"),
    [
        (("x, z", "y"), "has 1 input, but takes 2"),
        (("x: int64", "y"), "takes no FLOAT as 'x'"),
        (("x", "y: double"), "takes no FLOAT as 'y'"),
    ],
)
def test_a_model_whose_node_is_not_as_declared_is_refused(ports: tuple[str, str], fault: str) -> None:
    text = _ALONE.replace("OP", "Wrong").replace(
        "a = test.own.Wrong(w) y = Add(x, a)", "y = test.own.Wrong(x)"
    )
    with _registered(custom("test.own", "Wrong", *ports)), pytest.raises(ModelError, match=fault):
        Model.from_text(text)


def test_a_variadic_port_may_be_empty_and_all_its_outputs_are_alike() -> None:
    with _registered(custom("test.own", "Parts", "x, rest*", "y*", shape="x")):
        text = _ALONE.replace("a = test.own.OP(w)", "a, b = test.own.Parts(w)").replace("(x, a)", "(x, b)")
        made = Pipeline.parse("infer-shapes").run(Model.from_text(text)).model
        assert [dims_of(v) for v in next(iter(made.nodes())).outputs] == [(2,), (2,)]


def test_a_library_that_is_missing_is_named(tmp_path: Path) -> None:
    gone = custom("test.own", "OP", "x", "y", library=tmp_path / "gone.so")
    with _registered(gone), pytest.raises(ModelError, match=r"its library .*gone\.so is missing"):
        session(Model.from_text(_ALONE))
    lost = custom("test.own", "OP", "x", "y", library=lambda: str(1 // 0))
    with _registered(lost), pytest.raises(FuselineError, match=r"cannot be found, at .*test_custom\.py"):
        libraries()


def test_a_wider_type_of_numpy_becomes_the_declared_one() -> None:
    wide = custom("test.own", "Wide", "x", "y", shape="x", reference=lambda x: x.astype(np.float64) / 3)
    with _registered(wide):
        model = Model.from_text(_ALONE.replace("OP", "Wide"))
        folded = Pipeline.parse("fold-constants").run(model).model.graph.initializers["a"].const_value
        assert folded is not None
        assert folded.dtype == ir.DataType.FLOAT


_ALONE = """
<ir_version: 9, opset_import: ["" : 18, "test.own" : 1]>
g (float[2] x) => (float[2] y) <float[2] w = {0, 1}> { a = test.own.OP(w) y = Add(x, a) }
"""


@contextmanager
def _registered(operator: Operator) -> Iterator[None]:
    register(operator)
    try:
        yield
    finally:
        forget(operator)
