"""Small ONNX graphs as callables over memory that is bound once, with our operators or ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from fuseline.kernels import DOMAIN, OPERATORS, VERSION
from fuseline.kernels.evaluate import create_session
from fuseline.kernels.operator import Array

__all__ = ["Node", "graph", "native", "stock"]

Node = onnx.NodeProto
MICROSOFT = "com.microsoft"


def native(name: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: int | float) -> Node:
    return OPERATORS[name].node(inputs, outputs, attributes)


def stock(
    name: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any
) -> Node:
    return onnx.helper.make_node(name, list(inputs), list(outputs), domain=domain, **attributes)


def graph(
    nodes: Sequence[Node], feeds: Mapping[str, Array], results: Sequence[str], threads: int
) -> Callable[[], None]:
    """Runs the nodes over the feeds' own memory; results go to memory that stays."""
    helper = onnx.helper
    model = helper.make_model(
        helper.make_graph(
            list(nodes),
            "benchmark",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                for n, v in feeds.items()
            ],
            [helper.make_empty_tensor_value_info(name) for name in results],
        ),
        ir_version=10,
        opset_imports=[
            helper.make_opsetid("", 17),
            helper.make_opsetid(DOMAIN, VERSION),
            helper.make_opsetid(MICROSOFT, 1),
        ],
    )
    session = create_session(model, threads)
    first = session.run(list(results), dict(feeds))
    binding = session.io_binding()
    kept = [np.empty_like(value) for value in first]
    for name, value in feeds.items():
        binding.bind_input(name, "cpu", 0, value.dtype, value.shape, value.ctypes.data)
    for name, value in zip(results, kept, strict=True):
        binding.bind_output(name, "cpu", 0, value.dtype, value.shape, value.ctypes.data)

    def run(keep: object = (kept, dict(feeds))) -> None:
        session.run_with_iobinding(binding)

    return run
