"""What the bodies of Loop and Scan are given: sizes that a body declares need not hold in every round.

The shape of a value that is carried from round to round may change on the way, and a name in a body may
mean another size than the same name outside. So a declared size counts only where it is that of the value
the first round gets and, computed, that of the value each round hands to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.nodes import is_op
from fuseline.engine.shapes.dims import Dim, Dims, dims_of

__all__ = ["Carried", "carried", "has_body", "scanned"]

# Before opset 9 Scan has a batch axis, and a first operand with the lengths.
_SCAN_WITHOUT_BATCH = 9


@dataclass(frozen=True)
class Carried:
    """A value that goes from round to round: as the body gets it, as it is at first, as a round leaves it."""

    taken: ir.Value
    first: ir.Value | None
    left: ir.Value

    def at_first(self) -> Dims | None:
        """What the declared shape says of the first round, where names must be the same outside."""
        declared, given = _declared(self.taken), dims_of(self.first)
        if declared is None or (given is not None and len(given) != len(declared)):
            return None
        pairs = zip(declared, given or (None,) * len(declared), strict=True)
        return tuple(d if d == g or (g is None and isinstance(d, int)) else None for d, g in pairs)

    def in_every_round(self) -> Dims | None:
        """What is left of that after a round whose shapes were computed from it."""
        declared, left = _declared(self.taken), dims_of(self.left)
        if declared is None or left is None or len(left) != len(declared):
            return None
        return tuple(d if d == found else None for d, found in zip(declared, left, strict=True))

    def expects(self, dims: Dims | None) -> bool:
        return _declared(self.taken) == dims


def has_body(node: ir.Node) -> bool:
    return is_op(node, "Loop", "Scan")


def carried(node: ir.Node, opset: int) -> Iterator[Carried]:
    """What a Loop or Scan carries from round to round."""
    body = node.attributes["body"].as_graph()
    if is_op(node, "Loop"):
        triples = zip(body.inputs[2:], node.inputs[2:], body.outputs[1:], strict=False)
    else:
        states = len(body.inputs) - node.attributes.get_int("num_scan_inputs", 0)
        operands = node.inputs if opset >= _SCAN_WITHOUT_BATCH else (None,) * states
        triples = zip(body.inputs[:states], operands, body.outputs, strict=False)
    for taken, first, left in triples:
        yield Carried(taken, first, left)


def scanned(node: ir.Node, opset: int) -> Iterator[tuple[ir.Value, Dims]]:
    """What a Scan takes slices of, with the shape that a slice has."""
    if not is_op(node, "Scan") or opset < _SCAN_WITHOUT_BATCH:
        return
    count = node.attributes.get_int("num_scan_inputs", 0)
    axes = node.attributes.get_ints("scan_input_axes", (0,) * count)
    body = node.attributes["body"].as_graph()
    for value, operand, axis in zip(body.inputs[-count:], node.inputs[-count:], axes, strict=False):
        dims = dims_of(operand)
        if dims is not None and -len(dims) <= axis < len(dims):
            yield value, tuple(d for i, d in enumerate(dims) if i != axis % len(dims))


def _declared(value: ir.Value) -> Dims | None:
    """The shape as it is written: what is left open has no name here."""
    if value.shape is None or isinstance(value.type, (ir.SequenceType, ir.OptionalType)):
        return None
    found: list[Dim] = []
    for written, dim in zip(value.shape, dims_of(value) or (), strict=True):
        found.append(None if isinstance(written, ir.SymbolicDim) and written.value is None else dim)
    return tuple(found)
