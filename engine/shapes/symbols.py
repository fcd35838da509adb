"""Names for dimensions that nothing is known about."""

from __future__ import annotations

import re

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.naming import fresh_name
from fuseline.engine.shapes.dims import dims_of

__all__ = ["Symbols"]


class Symbols:
    """Gives each unknown dimension a name that the model does not use yet."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._taken: set[str] | None = None

    def fresh(self, value: ir.Value, axis: int) -> str:
        if self._taken is None:
            self._taken = _symbols_of(self._model)
        stem = re.sub(r"\W", "_", f"d_{value.name}_{axis}")
        symbol = fresh_name(stem, self._taken.__contains__)
        self._taken.add(symbol)
        return symbol


def _symbols_of(model: Model) -> set[str]:
    found: set[str] = set()
    for graph in model.graphs():
        outputs = (v for node in graph for v in node.outputs)
        for value in (*graph.inputs, *outputs):
            found.update(d for d in dims_of(value) or () if isinstance(d, str))
    return found
