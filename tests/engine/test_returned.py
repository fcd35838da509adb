"""What a graph takes in and returns keeps the declaration of the input."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline


@pytest.mark.parametrize(
    "declared",
    [
        onnx.ValueInfoProto(name="x"),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None]),
    ],
    ids=["nothing", "no shape", "no sizes"],
)
def test_an_input_that_is_returned_keeps_its_declaration(
    declared: onnx.ValueInfoProto, tmp_path: Path
) -> None:
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [taken], [made, declared])
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    for model in (Model.load(path), Model.from_proto(proto)):
        after = Pipeline.resolve("inference-O1").run(model).model.to_proto()
        assert after.graph.input[0].type == taken.type
    assert proto.graph.output[1] == declared  # what was given is not changed
