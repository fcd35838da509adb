"""Runs one operator by itself, through a real ONNX Runtime session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from fuseline.kernels import loader
from fuseline.kernels.operator import DOMAIN, VERSION, Array, Operator

__all__ = ["build_model", "create_session", "evaluate"]

_OPSET = 17
_IR_VERSION = 10


def build_model(
    operator: Operator,
    inputs: Sequence[Array],
    attributes: dict[str, int | float] | None = None,
    without: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model of the one node, leaving out the outputs named by ``without``.

    Numpy has no bf16: what is bf16 in the node is float in the model.
    """
    names = [f"in{i}" for i in range(len(inputs))]
    outputs = ["" if output.name in without else output.name for output in operator.outputs]
    graph = onnx.helper.make_graph(
        _with_casts(operator, operator.node(names, outputs, attributes)),
        operator.name,
        [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in zip(names, inputs, strict=True)
        ],
        [
            onnx.helper.make_tensor_value_info(output.name, _element_type(output.type), None)
            for output in operator.outputs
            if output.name not in without
        ],
    )
    return onnx.helper.make_model(
        graph,
        ir_version=_IR_VERSION,
        opset_imports=[onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid(DOMAIN, VERSION)],
    )


def _with_casts(operator: Operator, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    def cast(source: str, target: str, to: int) -> onnx.NodeProto:
        return onnx.helper.make_node("Cast", [source], [target], to=to)

    before, after = [], []
    for index, item in enumerate(operator.inputs):
        if item.type == "bfloat16":
            name, node.input[index] = node.input[index], f"{node.input[index]}_bf16"
            before.append(cast(name, node.input[index], onnx.TensorProto.BFLOAT16))
    for index, item in enumerate(operator.outputs):
        if item.type == "bfloat16" and node.output[index]:
            name, node.output[index] = node.output[index], f"{node.output[index]}_bf16"
            after.append(cast(node.output[index], name, onnx.TensorProto.FLOAT))
    return [*before, node, *after]


def _element_type(name: str) -> int:
    return int(onnx.TensorProto.DataType.Value("FLOAT" if name == "bfloat16" else name.upper()))


def create_session(model: onnx.ModelProto, threads: int = 1) -> Any:
    """An inference session over the model with this library registered."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    loader.register(options)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def evaluate(
    operator: Operator,
    inputs: Sequence[Array],
    threads: int = 1,
    without: Sequence[str] = (),
    **attributes: int | float,
) -> list[Array]:
    """The operator's outputs but for those named by ``without``.

    Operators that work in place change the given arrays.
    """
    session = create_session(build_model(operator, inputs, attributes, without), threads)
    feeds = {f"in{i}": np.asarray(v, order="C") for i, v in enumerate(inputs)}
    return list(session.run(None, feeds))
