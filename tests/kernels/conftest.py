"""Shared by the kernel tests: every instruction set in turn, and gradients through the gradient builder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest

from fuseline.engine.training.definitions import register_definitions
from fuseline.kernels import (
    DOMAIN,
    VERSION,
    Operator,
    available,
    instruction_set,
    require,
)
from fuseline.kernels.evaluate import create_session
from fuseline.kernels.loader import native
from fuseline.kernels.operator import Array

collect_ignore_glob: list[str] = [] if available() else ["test_*.py"]


@pytest.fixture(params=["portable", "avx2", "avx512", "avx512bf16"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test once per instruction set that this processor has."""
    before = instruction_set()
    if not native().fuseline_use_isa(request.param.encode()):
        pytest.skip(f"this processor has no {request.param}")
    yield request.param
    native().fuseline_use_isa(before.encode())


Gradients = Callable[..., tuple[list[Array], dict[str, Array]]]


@pytest.fixture
def gradients() -> Gradients:
    """``gradients(operator, inputs, wrt, weights, **attributes)``: outputs, and d Σ output·weight / d input.

    The graph is built by ONNX Runtime's gradient builder from the registered definitions.
    """
    return _gradients


def _gradients(
    operator: Operator,
    inputs: dict[str, Array],
    wrt: list[str],
    weight: Array,
    **attributes: int | float,
) -> tuple[list[Array], dict[str, Array]]:
    from onnxruntime.training.onnxblock._training_graph_utils import build_gradient_graph

    register_definitions()
    model = _loss_model(operator, inputs, wrt, weight, attributes)
    training, _ = build_gradient_graph(
        model, set(wrt), set(), ["objective", operator.outputs[0].name], str(require())
    )
    feeds = {**inputs, "objective_weight": weight}
    session = create_session(training)
    names = [output.name for output in session.get_outputs()]
    wanted = {item.name for item in session.get_inputs()}
    results = dict(
        zip(names, session.run(names, {k: v for k, v in feeds.items() if k in wanted}), strict=True)
    )
    return [results[operator.outputs[0].name]], {name: results[f"{name}_grad"] for name in wrt}


def _loss_model(
    operator: Operator,
    inputs: dict[str, Array],
    wrt: list[str],
    weight: Array,
    attributes: dict[str, int | float],
) -> onnx.ModelProto:
    helper = onnx.helper
    order = [item.name if item.name in inputs else "" for item in operator.inputs]
    while not order[-1]:
        order.pop()
    outputs = [item.name for item in operator.outputs]
    nodes = [
        operator.node(order, outputs, attributes),
        helper.make_node("Mul", [outputs[0], "objective_weight"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted"], ["objective"], keepdims=0),
    ]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in {**inputs, "objective_weight": weight}.items()
        if name not in wrt
    ]
    graph = helper.make_graph(
        nodes,
        "loss",
        infos,
        [
            helper.make_tensor_value_info("objective", onnx.TensorProto.FLOAT, ()),
            helper.make_tensor_value_info(outputs[0], onnx.TensorProto.FLOAT, None),
        ],
        initializer=[onnx.numpy_helper.from_array(inputs[name], name) for name in wrt],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, VERSION)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
