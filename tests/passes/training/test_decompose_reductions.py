"""Extremes at the ends of the range, and those that nothing is learned through."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline

TEXT = """<ir_version: 8, opset_import: ["" : 18]>
g (float[2,3] x) => (float loss, float[2] m) <float[3] w = {{1, 1, 1}}, int64[1] last = {{-1}}> {{
    a = Mul(x, w)
    m = {0}<keepdims = 0>({1}, last)
    loss = ReduceSum<keepdims = 0>(m)
}}"""


def _decomposed(text: str) -> Model:
    model = Model.from_text(text)
    model.parameters.add(Parameter("w", "w", (3,)))
    return Pipeline.resolve("decompose-reductions").run(model).model


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
def test_equal_extremes_are_not_added_up(operator: str) -> None:
    model = _decomposed(TEXT.format(operator, "a"))
    assert "Where" in {node.op_type for node in model.nodes()}
    session = onnxruntime.InferenceSession(model.to_proto().SerializeToString())
    x = np.full((2, 3), 3e38, np.float32)
    x[1] = np.nan
    found = session.run(["m"], {"x": x})[0]
    np.testing.assert_allclose(found, [3e38, np.nan], rtol=1e-6)


def test_what_is_not_learned_stays() -> None:
    model = _decomposed(TEXT.format("ReduceMax", "x"))
    assert [node.op_type for node in model.nodes()] == ["Mul", "ReduceMax", "ReduceSum"]
