"""Whether ONNX Runtime has a kernel for a node: asked once per operator, version and element types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import onnx
from onnx import helper

__all__ = ["open_session", "takes"]

_known: dict[tuple[object, ...], bool] = {}


@cache
def _settings() -> Any:
    import onnxruntime as ort

    from fuseline.engine.operators import libraries

    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    settings.inter_op_num_threads = 1
    for library in libraries():
        settings.register_custom_ops_library(str(library))
    return settings


def open_session(model: bytes) -> Any:
    """A session on the bytes as they are, optimisations off: nothing of ours stands in between."""
    import onnxruntime as ort

    return ort.InferenceSession(model, _settings(), providers=["CPUExecutionProvider"])


def takes(node: onnx.NodeProto, types: Sequence[int | None], opset: int) -> bool:
    """`types` are the element types of the node's inputs, None for an absent one."""
    attributes = tuple(sorted(a.name for a in node.attribute))
    key = (node.domain, node.op_type, opset, tuple(types), len(node.output), attributes)
    if key not in _known:
        _known[key] = _try(node, types, opset)
    return _known[key]


def _try(node: onnx.NodeProto, types: Sequence[int | None], opset: int) -> bool:
    by_name = {n: t for n, t in zip(node.input, types, strict=True) if n and t is not None}
    graph = helper.make_graph(
        [node],
        "probe",
        [helper.make_tensor_value_info(n, t, None) for n, t in by_name.items()],
        [helper.make_empty_tensor_value_info(n) for n in node.output if n],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, ir_version=9, opset_imports=opsets)
    try:
        open_session(model.SerializeToString())
    except Exception:  # ONNX Runtime raises a dozen unrelated types
        return False
    return True
