"""Gradients of standard operators for which ONNX Runtime has none, written as a few nodes each.

A definition sees the operator's inputs `I(i)`, outputs `O(i)` and the gradients of its outputs `GO(i)`, and
makes `GI(i)`; it does not see attributes, so that only operators without them (or with the usual ones) are
here. Passes bring other forms into one of these.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

__all__ = ["DEFINITIONS", "STOPPED", "Node", "register_definitions"]


@dataclass(frozen=True)
class Node:
    """One node of a definition; an input that is a number becomes a constant."""

    op_type: str
    inputs: tuple[str | float, ...]
    output: str = "GI(0)"
    attributes: dict[str, int] = field(default_factory=dict)


def _chain(derivative: list[Node]) -> tuple[Node, ...]:
    """The gradient of y = f(x), given nodes that make f′ as `d`."""
    return (*derivative, Node("Mul", ("GO(0)", "d")))


_SQUARE = Node("Mul", ("I(0)", "I(0)"), "s")

DEFINITIONS: dict[str, tuple[Node, ...]] = {
    "Softplus": _chain([Node("Sigmoid", ("I(0)",), "d")]),
    "Softsign": _chain(
        [Node("Abs", ("O(0)",), "a"), Node("Sub", (1.0, "a"), "b"), Node("Mul", ("b", "b"), "d")]
    ),
    "Tan": _chain([Node("Mul", ("O(0)", "O(0)"), "s"), Node("Add", ("s", 1.0), "d")]),
    "Atan": _chain([_SQUARE, Node("Add", ("s", 1.0), "b"), Node("Div", (1.0, "b"), "d")]),
    "Asin": _chain(
        [_SQUARE, Node("Sub", (1.0, "s"), "b"), Node("Sqrt", ("b",), "r"), Node("Div", (1.0, "r"), "d")]
    ),
    "Acos": _chain(
        [_SQUARE, Node("Sub", (1.0, "s"), "b"), Node("Sqrt", ("b",), "r"), Node("Div", (-1.0, "r"), "d")]
    ),
    "Sinh": _chain([Node("Cosh", ("I(0)",), "d")]),
    "Cosh": _chain([Node("Sinh", ("I(0)",), "d")]),
    "Asinh": _chain(
        [_SQUARE, Node("Add", ("s", 1.0), "b"), Node("Sqrt", ("b",), "r"), Node("Div", (1.0, "r"), "d")]
    ),
    "Acosh": _chain(
        [_SQUARE, Node("Sub", ("s", 1.0), "b"), Node("Sqrt", ("b",), "r"), Node("Div", (1.0, "r"), "d")]
    ),
    "Atanh": _chain([_SQUARE, Node("Sub", (1.0, "s"), "b"), Node("Div", (1.0, "b"), "d")]),
    "CumSum": (Node("CumSum", ("GO(0)", "I(1)"), attributes={"reverse": 1}),),
    **dict.fromkeys(("Floor", "Ceil", "Round", "Sign"), (Node("Mul", ("GO(0)", 0.0)),)),
}
"""Standard operators whose gradient we define."""

STOPPED: dict[str, tuple[int, ...]] = {"CumSum": (1,)}
"""Operator → inputs that are no numbers to train."""


@cache
def register_definitions() -> None:
    """Make the definitions known to ONNX Runtime, once per process."""
    from onnxruntime.capi import _pybind_state as native

    for op_type, nodes in DEFINITIONS.items():
        native.register_gradient_definition(f"::{op_type}", _translated(native, nodes))
    for op_type, edges in STOPPED.items():
        native.register_custom_stop_gradient_edges(f"::{op_type}", set(edges))


def _translated(native: Any, nodes: tuple[Node, ...]) -> list[Any]:
    made = []
    for index, node in enumerate(nodes):
        inputs = []
        for position, value in enumerate(node.inputs):
            if isinstance(value, str):
                inputs.append(value)
                continue
            name = f"c{index}_{position}"
            made.append(_definition(native, "Constant", [], name, [_number(native, value)]))
            inputs.append(name)
        attributes = [_attribute(native, k, v, "int", False) for k, v in node.attributes.items()]
        made.append(_definition(native, node.op_type, inputs, node.output, attributes))
    return made


def _definition(native: Any, op_type: str, inputs: list[str], output: str, attributes: list[Any]) -> Any:
    made = native.GradientNodeDefinition()
    made.op_type, made.domain = op_type, ""
    made.inputs, made.outputs, made.attributes = inputs, [output], attributes
    return made


def _number(native: Any, value: float) -> Any:
    return _attribute(native, "value", value, "IElemType(0)", True)


def _attribute(native: Any, name: str, value: float, dtype: str, is_tensor: bool) -> Any:
    made = native.GradientNodeAttributeDefinition()
    made.name, made.value_json = name, json.dumps(value)
    made.dtype, made.is_tensor = dtype, is_tensor
    return made
