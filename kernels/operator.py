"""What an operator of this library is: one declarative record, from which everything else follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir

from fuseline.engine.shapes.site import Site, Typing

__all__ = ["DOMAIN", "VERSION", "Array", "GradientNode", "Operator", "Port", "optional", "port", "variadic"]

DOMAIN = "fuseline"
VERSION = 1

Array = np.ndarray[Any, Any]
ElementType = Literal["float", "double", "int64", "bool"]
Dimension = int | str | None

_ONNX_TYPES: dict[ElementType, int] = {
    "float": onnx.TensorProto.FLOAT,
    "double": onnx.TensorProto.DOUBLE,
    "int64": onnx.TensorProto.INT64,
    "bool": onnx.TensorProto.BOOL,
}


@dataclass(frozen=True)
class Port:
    """An input or an output.

    ``shape`` of an output: the name of the input that it equals, that name with ``[:-1]`` (without the last
    axis), a comma list of sizes (``"1"``), ``"scalar"``, or empty where it depends on the values.
    """

    name: str
    type: ElementType = "float"
    shape: str = ""
    optional: bool = False
    variadic: bool = False


def port(name: str, shape: str = "", type: ElementType = "float") -> Port:
    return Port(name, type, shape)


def optional(name: str, shape: str = "", type: ElementType = "float") -> Port:
    return Port(name, type, shape, optional=True)


def variadic(name: str) -> Port:
    return Port(name, variadic=True)


@dataclass(frozen=True)
class GradientNode:
    """A node of a gradient: ``I(i)``, ``O(i)`` are the forward node's inputs and outputs, ``GO(i)`` and
    ``GI(i)`` their gradients; any other name is an intermediate.

    ``GI(i)`` belongs at position i of the outputs: ONNX Runtime's builder asks whether the input at the
    *position* needs a gradient, and drops the output if it does not.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: str = DOMAIN
    attributes: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Operator:
    """One operator: its ports, its meaning in numpy, and the nodes of its gradient (empty: none).

    No input is ever left out, since ONNX Runtime's gradient builder fails on that: a tensor without elements
    stands for an absent one.
    """

    name: str
    summary: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    reference: Callable[..., tuple[Array, ...]]
    attributes: Mapping[str, int | float] = field(default_factory=dict)  # name → default
    gradient: tuple[GradientNode, ...] = ()

    @property
    def differentiable(self) -> bool:
        return bool(self.gradient)

    def node(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, int | float] | None = None,
        name: str = "",
    ) -> onnx.NodeProto:
        """A node of this operator; an unknown attribute is an error, since the runtime would ignore it."""
        attributes = attributes or {}
        unknown = sorted(set(attributes) - set(self.attributes))
        if unknown:
            raise ValueError(
                f"{DOMAIN}.{self.name} has no attribute {unknown[0]!r}; it knows {sorted(self.attributes)}"
            )
        node = onnx.helper.make_node(self.name, list(inputs), list(outputs), name=name or None, domain=DOMAIN)
        node.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in attributes.items())
        return node

    def output_shapes(
        self, inputs: Mapping[str, Sequence[Dimension]]
    ) -> dict[str, tuple[Dimension, ...] | None]:
        """The shape of every output by name; None where the inputs' shapes do not say."""
        return {output.name: _resolve(output.shape, inputs) for output in self.outputs}

    def infer(self, site: Site) -> list[Typing]:
        """Types and shapes of the outputs, for the engine's inference."""
        known = {port.name: site.dims(index) for index, port in enumerate(self.inputs)}
        shapes = self.output_shapes({name: dims for name, dims in known.items() if dims is not None})
        return [(ir.DataType(_ONNX_TYPES[port.type]), shapes[port.name]) for port in self.outputs]

    def schema(self) -> onnx.defs.OpSchema:
        """The ONNX schema, for checkers and documentation."""
        return onnx.defs.OpSchema(
            self.name,
            DOMAIN,
            VERSION,
            doc=self.summary,
            inputs=[_parameter(item) for item in self.inputs],
            outputs=[_parameter(item) for item in self.outputs],
            attributes=[
                onnx.defs.OpSchema.Attribute(name, onnx.helper.make_attribute(name, default), name)
                for name, default in self.attributes.items()
            ],
        )


def _resolve(shape: str, inputs: Mapping[str, Sequence[Dimension]]) -> tuple[Dimension, ...] | None:
    if shape == "scalar":
        return ()
    if shape == "" or shape[0].isdigit():
        return tuple(int(size) for size in shape.split(",")) if shape else None
    name = shape.removesuffix("[:-1]")
    if name not in inputs:
        return None
    known = tuple(inputs[name])
    return known if name == shape else known[:-1]


def _parameter(item: Port) -> onnx.defs.OpSchema.FormalParameter:
    option = onnx.defs.OpSchema.FormalParameterOption
    kind = option.Variadic if item.variadic else option.Optional if item.optional else option.Single
    return onnx.defs.OpSchema.FormalParameter(item.name, f"tensor({item.type})", param_option=kind)
