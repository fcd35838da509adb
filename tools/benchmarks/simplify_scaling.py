"""How the time of `inference-O1` grows with the size of the graph."""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.console import console

__all__ = ["exponent", "layered_graph"]

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
_WIDTH = 8
_NODES_PER_LAYER = 14


def layered_graph(nodes: int) -> onnx.ModelProto:
    """About `nodes` nodes of what exporters leave behind: constants, identities, shape arithmetic, casts."""
    made: list[onnx.NodeProto] = []
    value = "x"
    for layer in range(max(1, nodes // _NODES_PER_LAYER)):
        value = _layer(made, layer, value)
    made.append(helper.make_node("Identity", [value], ["y"]))
    weights = [numpy_helper.from_array(np.eye(_WIDTH, dtype=np.float32), "w")]
    graph = helper.make_graph(
        made,
        "layers",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", "S", _WIDTH])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", "S", _WIDTH])],
        weights,
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])


def _layer(made: list[onnx.NodeProto], layer: int, value: str) -> str:
    def node(op_type: str, *inputs: str, **attributes: Any) -> str:
        output = f"l{layer}_{len(made)}"
        made.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def constant(*numbers: int) -> str:
        return node("Constant", value=numpy_helper.from_array(np.array(numbers, np.int64)))

    shape = node("Shape", value)
    size = node("Gather", shape, constant(0))
    target = node("Concat", size, constant(-1, _WIDTH), axis=0)
    reshaped = node("Reshape", value, target)
    there = node("Transpose", reshaped, perm=[0, 2, 1])
    back = node("Transpose", there, perm=[0, 2, 1])
    product = node("MatMul", back, "w")
    same = node("Cast", node("Identity", product), to=onnx.TensorProto.FLOAT)
    sliced = node("Slice", same, constant(0), constant(1 << 62))
    return node("Relu", sliced)


def exponent() -> float:
    """The slope of log(time) over log(nodes); every size is timed a few times, smallest time taken."""
    pipeline = Pipeline.resolve("inference-O1")
    points: list[tuple[float, float]] = []
    for size in SIZES:
        proto = layered_graph(size)
        seconds = min(_time(pipeline, proto) for _ in range(max(1, min(5, 20_000 // size))))
        count = len(proto.graph.node)
        console.print(f"{count:>8,} nodes: {seconds:7.2f} s, {seconds / count * 1e6:5.0f} µs a node")
        points.append((math.log(count), math.log(seconds)))
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def _time(pipeline: Pipeline, proto: onnx.ModelProto) -> float:
    # Processor time: one thread works, and a run of half a minute should not see its neighbours.
    begun = time.process_time()
    pipeline.run(Model.from_proto(proto), in_place=True)
    return time.process_time() - begun
