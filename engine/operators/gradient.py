"""How the gradient of an operator comes about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "BUILT_IN",
    "STOP_GRADIENT",
    "BuiltIn",
    "Defined",
    "Gradient",
    "GradientNode",
    "NoGradient",
    "Prepared",
    "defined",
]

STOP_GRADIENT = "OptionalGetElement"
"""The identity through which no gradient flows.

On a tensor ONNX defines it as the identity; every runtime has it, and no exporter emits it for anything
else, so that no rewrite of real identities can take it away.
"""


@dataclass(frozen=True)
class GradientNode:
    """A node of a gradient: ``I(i)``, ``O(i)`` are the forward node's inputs and outputs, ``GO(i)`` and
    ``GI(i)`` their gradients; any other name is an intermediate, and a number a constant.

    ``GI(i)`` belongs at position i of the outputs: ONNX Runtime's builder asks whether the input at the
    *position* needs a gradient, and drops the output if it does not.
    """

    op_type: str
    inputs: tuple[str | float, ...]
    outputs: tuple[str, ...] = ("GI(0)",)
    domain: str = ""
    attributes: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Gradient:
    """Where the gradient comes from."""

    @property
    def exists(self) -> bool:
        return False


@dataclass(frozen=True)
class BuiltIn(Gradient):
    """ONNX Runtime 1.19.2 builds it and has the kernels on the CPU."""

    @property
    def exists(self) -> bool:
        return True


@dataclass(frozen=True)
class Defined(Gradient):
    """A few nodes of ours. They do not see the forward node's attributes."""

    nodes: tuple[GradientNode, ...]
    stopped: frozenset[int] = frozenset()
    """Inputs that are no numbers to train."""

    @property
    def exists(self) -> bool:
        return True


@dataclass(frozen=True)
class Prepared(Gradient):
    """There is none, but a pass writes the operator with others that have one."""

    by: str = ""
    """The pass; empty where the pipeline `prepare-for-gradient` does it without a word."""


@dataclass(frozen=True)
class NoGradient(Gradient):
    """There is none; what the user can do."""

    advice: str = "freeze the parameters before it, or write it with other operators"


BUILT_IN = BuiltIn()


def defined(*nodes: GradientNode, stopped: frozenset[int] = frozenset()) -> Defined:
    return Defined(nodes, stopped)
