"""Teaching ONNX Runtime's gradient builder the gradients that operators' records define."""

from __future__ import annotations

import json
from typing import Any

from fuseline.engine.operators import records
from fuseline.engine.operators.gradient import Defined, GradientNode

__all__ = ["register_definitions"]

_taught: set[str] = set()


def register_definitions() -> None:
    """Make the definitions known to ONNX Runtime, each once per process."""
    from onnxruntime.capi import _pybind_state as native

    for operator in records():
        gradient, key = operator.gradient, f"{operator.domain}::{operator.name}"
        if not isinstance(gradient, Defined) or key in _taught:
            continue
        native.register_gradient_definition(key, _translated(native, gradient.nodes))
        if gradient.stopped:
            native.register_custom_stop_gradient_edges(key, set(gradient.stopped))
        _taught.add(key)


def _translated(native: Any, nodes: tuple[GradientNode, ...]) -> list[Any]:
    made = []
    for index, node in enumerate(nodes):
        inputs = []
        for position, value in enumerate(node.inputs):
            if isinstance(value, str):
                inputs.append(value)
                continue
            constant = GradientNode("Constant", (), (f"c{index}_{position}",))
            # The type of the forward node's first input, whatever it is.
            number = _attribute(native, "value", value, "IElemType(0)", is_tensor=True)
            made.append(_definition(native, constant, [], [number]))
            inputs.append(constant.outputs[0])
        attributes = [
            _attribute(native, name, value, "int" if isinstance(value, int) else "float", is_tensor=False)
            for name, value in node.attributes.items()
        ]
        made.append(_definition(native, node, inputs, attributes))
    return made


def _definition(native: Any, node: GradientNode, inputs: list[str], attributes: list[Any]) -> Any:
    made = native.GradientNodeDefinition()
    made.op_type, made.domain = node.op_type, node.domain
    made.inputs, made.outputs, made.attributes = inputs, list(node.outputs), attributes
    return made


def _attribute(native: Any, name: str, value: float, dtype: str, *, is_tensor: bool) -> Any:
    made = native.GradientNodeAttributeDefinition()
    made.name, made.value_json = name, json.dumps(value)
    made.dtype, made.is_tensor = dtype, is_tensor
    return made
