"""Calls that ONNX Runtime itself does not survive, and what is refused with a reason."""

from __future__ import annotations

import pytest

from fuseline import Model, Pipeline
from fuseline.engine.errors import ModelError

_CALL = """
<ir_version: 10, opset_import: ["" : 17, "f" : 1]>
g (float[N,3,4] x) => (float[N,3,4] y) {{ {body} }}
<domain: "f", opset_import: ["" : {opset}]>
soft (a) => (c) {{ c = Softmax(a) }}
<domain: "f", opset_import: ["" : 17, "f" : 1]>
outer (a) => (c) {{ c = f.soft(a) }}
"""


@pytest.mark.parametrize("body", ["y = f.soft(x)", "y = f.outer(x)"])
def test_a_function_of_another_opset_is_refused(body: str) -> None:
    """Softmax of opset 11 sums over all axes behind the first: inlined as it is, it would be another one."""
    model = Model.from_text(_CALL.format(body=body, opset=11))
    with pytest.raises(ModelError, match=r"'f::soft' is written for opset 11 of ai\.onnx, the model for 17"):
        Pipeline.resolve("inline-functions").run(model)
    Pipeline.resolve("inline-functions").run(Model.from_text(_CALL.format(body=body, opset=17)))


def test_results_that_a_call_does_not_list_are_made_all_the_same() -> None:
    """ONNX Runtime ends the process at such a call, so that no golden file can run it."""
    model = Model.from_text("""
    <ir_version: 10, opset_import: ["" : 17, "f" : 1]>
    g (float[N] x) => (float[N] y) { y = f.two(x) }
    <domain: "f", opset_import: ["" : 17]>
    two (a) => (b, c) { b = Relu(a) c = Neg(b) }
    """)
    inlined = Pipeline.resolve("inline-functions").run(model).model
    assert [node.op_type for node in inlined.nodes()] == ["Relu", "Neg"]
    assert all(value.name for node in inlined.nodes() for value in node.outputs)
