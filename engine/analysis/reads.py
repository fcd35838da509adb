"""Who reads what, captures of subgraphs included."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import read_by

__all__ = ["Reads", "ancestors"]


class Reads:
    """What each node reads and who reads each value; a branch's reads count for the node that has it."""

    def __init__(self, model: Model) -> None:
        self.of: dict[ir.Node, list[ir.Value]] = {}
        self.readers: dict[ir.Value, list[ir.Node]] = {}
        for node in model.nodes():
            values = self.of[node] = read_by(node)
            for value in dict.fromkeys(values):
                self.readers.setdefault(value, []).append(node)


def ancestors(values: Iterable[ir.Value]) -> set[ir.Value]:
    """The values themselves and all that they are computed from, captures of subgraphs included."""
    pending = list(values)
    seen = set(pending)
    while pending:
        producer = pending.pop().producer()
        if producer is None:
            continue
        for value in read_by(producer):
            if value not in seen:
                seen.add(value)
                pending.append(value)
    return seen
