"""What an operator of this library is: one declarative record, from which everything else follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir

from fuseline.engine.shapes.site import Site, Typing
from fuseline.kernels.contract import Bindings, Dimension, matches, resolve

__all__ = [
    "DOMAIN",
    "VERSION",
    "Array",
    "ElementType",
    "GradientNode",
    "Operator",
    "Port",
    "Sizes",
    "optional",
    "port",
    "variadic",
]

DOMAIN = "fuseline"
VERSION = 1

Array = np.ndarray[Any, Any]
ElementType = Literal["float", "double", "bfloat16", "int64", "int8", "uint8", "bool"]
Sizes = Mapping[str, int]
"""Sizes by the letters of the ports' shapes; a letter of several axes (``*R``) stands for their product."""


@dataclass(frozen=True)
class Port:
    """An input or an output; ``fuseline.kernels.contract`` says how its shape is written."""

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


def _no_workspace(sizes: Sizes) -> int:
    return 0


def _no_task_workspace(sizes: Sizes, threads: int) -> int:
    return 0


def _nothing_more(inputs: Mapping[str, Sequence[int]]) -> Sizes:
    return {}


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
    stands for an absent one. ``workspace`` gives the bytes of scratch memory that a run holds at most,
    whatever the instruction set and with every output left out that may be; ``task_workspace`` those that
    the threads hold besides, all together, for the tasks that it starts.
    """

    name: str
    summary: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    reference: Callable[..., tuple[Array, ...]]
    attributes: Mapping[str, int | float] = field(default_factory=dict)  # name → default
    gradient: tuple[GradientNode, ...] = ()
    workspace: Callable[[Sizes], int] = _no_workspace
    task_workspace: Callable[[Sizes, int], int] = _no_task_workspace
    """From sizes and the number of threads."""
    measures: Callable[[Mapping[str, Sequence[int]]], Sizes] = _nothing_more
    """Sizes that the workspace depends on besides those of letters, from the shapes of the inputs."""
    product: bool = False
    """Whether it multiplies matrices, so that its work grows faster than its data."""
    operations: Callable[[Sizes], int] | None = None
    """How many it takes, where the size of its first input does not tell."""
    in_place: tuple[int, ...] = ()
    """Inputs whose memory the first output may take over, as the library tells the runtime."""

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

    def bind(self, inputs: Mapping[str, Sequence[Dimension]]) -> Bindings | None:
        """What the letters of the ports' shapes stand for; None where the inputs do not fit together."""
        bindings = Bindings()
        for item in self.inputs:
            if item.name in inputs and not matches(item.shape, inputs[item.name], bindings):
                return None
        return bindings

    def output_shapes(
        self, inputs: Mapping[str, Sequence[Dimension]]
    ) -> dict[str, tuple[Dimension, ...] | None]:
        """The shape of every output by name; None where the inputs' shapes do not say."""
        bindings = self.bind(inputs)
        if bindings is None:
            return dict.fromkeys((output.name for output in self.outputs), None)
        return {output.name: resolve(output.shape, bindings) for output in self.outputs}

    def workspace_bytes(self, inputs: Mapping[str, Sequence[int]], threads: int) -> tuple[int, int]:
        """The most scratch memory that a run over inputs of these shapes holds, and that its tasks do."""
        sizes = self.sizes(inputs)
        return self.workspace(sizes), self.task_workspace(sizes, threads)

    def sizes(self, inputs: Mapping[str, Sequence[int]]) -> Sizes:
        """What the letters of the ports' shapes stand for, in numbers, and what more is measured."""
        bindings = self.bind(inputs)
        if bindings is None:
            raise ValueError(f"{DOMAIN}.{self.name} takes no inputs of the shapes {dict(inputs)}")
        sizes = {letter: int(size) for letter, size in bindings.sizes.items() if isinstance(size, int)}
        packs = {letter: math.prod(map(int, pack)) for letter, pack in bindings.packs.items()}  # type: ignore[arg-type]
        return {**sizes, **packs, **self.measures(inputs)}

    def infer(self, site: Site) -> list[Typing]:
        """Types and shapes of the outputs, for the engine's inference."""
        known = {port.name: site.dims(index) for index, port in enumerate(self.inputs)}
        shapes = self.output_shapes({name: dims for name, dims in known.items() if dims is not None})
        return [(ir.DataType[port.type.upper()], shapes[port.name]) for port in self.outputs]

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


def _parameter(item: Port) -> onnx.defs.OpSchema.FormalParameter:
    option = onnx.defs.OpSchema.FormalParameterOption
    kind = option.Variadic if item.variadic else option.Optional if item.optional else option.Single
    return onnx.defs.OpSchema.FormalParameter(item.name, f"tensor({item.type})", param_option=kind)
