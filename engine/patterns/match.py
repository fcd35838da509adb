"""What matching finds: matches, and failures with the place, the finding and the expectation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine import constants
from fuseline.engine.model import Model
from fuseline.engine.operators import Trait, record

__all__ = ["Context", "Failure", "Match"]


@dataclass(frozen=True)
class Match:
    """One place where a pattern fits."""

    root: ir.Node
    nodes: tuple[ir.Node, ...]
    outputs: tuple[ir.Value, ...]
    captures: dict[str, Any]
    labels: dict[str, ir.Node] = field(default_factory=dict)
    shared: frozenset[ir.Node] = frozenset()

    def values(self) -> list[ir.Value]:
        """Every captured value."""
        found: list[ir.Value] = []
        for item in self.captures.values():
            found.extend(v for v in (item if isinstance(item, tuple) else (item,)) if isinstance(v, ir.Value))
        return found


@dataclass(frozen=True)
class Failure:
    """Where a match ended: `matched` nodes had fitted when `node` did not."""

    root: ir.Node
    node: ir.Node
    matched: int
    found: str
    expected: str


@dataclass(frozen=True)
class Context:
    """What `check` and `replace` may ask about a match."""

    model: Model
    match: Match

    def node(self, label: str) -> ir.Node:
        """The node that the pattern labelled so."""
        return self.match.labels[label]

    def has(self, label: str) -> bool:
        return label in self.match.labels

    def constant(self, value: ir.Value | None) -> npt.NDArray[Any] | None:
        return constants.constant(self.model, value)

    def scalar(self, value: ir.Value | None) -> float | None:
        """The single element of a constant that does not change the rank of what it is combined with."""
        if value is not None and any(widens(value, node) for node in self.match.nodes):
            return None
        return constants.scalar(self.model, value)

    def is_constant(self, value: ir.Value | None) -> bool:
        return constants.is_constant(self.model, value)

    def used_outside(self, value: ir.Value) -> bool:
        """Whether anything but the matched nodes reads the value."""
        inside = set(self.match.nodes)
        return value.is_graph_output() or any(user not in inside for user, _ in value.uses())


def widens(value: ir.Value, user: ir.Node) -> bool:
    """Whether a constant of one element may give the node's result more dimensions than it has without."""
    rank = len(value.shape) if value.shape is not None else 0
    operator = record(user)
    if not rank or value not in user.inputs or operator is None or not operator.has(Trait.ELEMENTWISE):
        return False
    others = [v for v in user.inputs if v is not None and v is not value]
    return not any(v.shape is not None and len(v.shape) >= rank for v in others)


def show(model: Model, value: ir.Value | None) -> str:
    """What a value is, in words."""
    if value is None:
        return "no input"
    array = constants.constant(model, value, at_most=8)
    if array is not None:
        return f"the constant {_plain(array)}"
    producer = value.producer()
    if producer is not None:
        return f"the output of {producer.op_type} {producer.name!r}"
    kind = "initializer" if value.is_initializer() else "input"
    return f"the {kind} {value.name!r}"


def _plain(array: npt.NDArray[Any]) -> str:
    if array.dtype.kind == "f":
        array = np.asarray([float(f"{x:.8g}") for x in array.reshape(-1)])
    return str(array.reshape(-1)[0].item() if array.size == 1 else array.reshape(-1).tolist())
