"""Teaches ONNX Runtime's gradient builder the backward operators of this library."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from fuseline.kernels.operator import DOMAIN, GradientNode
from fuseline.kernels.ops import OPERATORS

__all__ = ["register_gradients"]


@cache
def register_gradients() -> None:
    """Registers every gradient once per process; needs the training build of ONNX Runtime.

    The builder also needs the library: pass ``str(loader.require())`` as its custom-operator library, or
    SessionOptions that went through ``loader.register``.
    """
    from onnxruntime.capi import _pybind_state as runtime

    if not hasattr(runtime, "register_gradient_definition"):
        raise RuntimeError(
            "this onnxruntime cannot build gradients; install onnxruntime-training-cpu==1.19.2 "
            "(pip install 'fuseline[cpu]') in place of onnxruntime"
        )
    for operator in OPERATORS.values():
        if operator.gradient:
            nodes = [_definition(runtime, node) for node in operator.gradient]
            runtime.register_gradient_definition(f"{DOMAIN}::{operator.name}", nodes)
            edges = {i for i, item in enumerate(operator.inputs) if item.type != "float"}
            if edges:
                runtime.register_custom_stop_gradient_edges(f"{DOMAIN}::{operator.name}", edges)


def _definition(runtime: Any, node: GradientNode) -> Any:
    definition = runtime.GradientNodeDefinition()
    definition.op_type = node.op_type
    definition.domain = node.domain
    definition.inputs = list(node.inputs)
    definition.outputs = list(node.outputs)
    attributes = []
    for name, value in node.attributes.items():
        attribute = runtime.GradientNodeAttributeDefinition()
        attribute.name = name
        attribute.value_json = json.dumps(value)
        attribute.dtype = "int" if isinstance(value, int) else "float"
        attribute.is_tensor = False
        attributes.append(attribute)
    definition.attributes = attributes
    return definition
