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
from fuseline.engine.errors import FuselineError
from fuseline.engine.operators import Trait, custom, libraries, lookup, record, register
from fuseline.engine.operators.operator import Operator
from fuseline.engine.operators.registry import forget
from fuseline.engine.shapes.dims import dims_of

SWISH = custom(
    "test.own",
    "ScaledSwish",
    "x, shift?",
    "y",
    attributes={"scale": 1.0},
    shape="x",
    reference=lambda x, scale: scale * x / (1 + np.exp(-x)),
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
    with pytest.raises(FuselineError, match=r"test\.own::ScaledSwish is registered twice"):
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
}


@pytest.mark.parametrize("message", WRONG_DECLARATIONS)
def test_a_wrong_declaration_is_refused_at_once(message: str) -> None:
    given: dict[str, Any] = {"domain": "test.own", "name": "Wrong", "inputs": "x", "outputs": "y"}
    with pytest.raises(FuselineError, match=message):
        custom(**(given | WRONG_DECLARATIONS[message]))


WRONG_ANSWERS: dict[str, dict[str, Any]] = {
    r"the shape rule of test.own::Wrong gave .* for 1 outputs": {"shape": lambda site: [(None, "abc")]},
    r"gave \[\] for 1 outputs": {"shape": lambda site: []},
    r"gave 2 arrays for 1 outputs": {"shape": "x", "reference": lambda x: (x, x)},
    r"gave int64, but its output is float32": {"shape": "x", "reference": lambda x: x.astype(np.int64)},
}


@pytest.mark.parametrize("message", WRONG_ANSWERS)
def test_what_contradicts_the_declaration_is_an_error(message: str) -> None:
    with _registered(custom("test.own", "Wrong", "x", "y", **WRONG_ANSWERS[message])):
        model = Model.from_text(_ALONE.replace("OP", "Wrong"))
        with pytest.raises(FuselineError, match=message):
            Pipeline.parse("infer-shapes,fold-constants").run(model)


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
