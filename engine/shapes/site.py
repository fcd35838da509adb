"""A node as a shape rule sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from fuseline.engine.shapes.dims import Dims, dims_of

if TYPE_CHECKING:
    from fuseline.engine.shapes.values import ShapeValues

__all__ = ["Rule", "Site", "Typing"]

Typing = tuple[ir.DataType | None, Dims | None]


@dataclass(frozen=True)
class Site:
    """A node and what is known around it."""

    node: ir.Node
    values: ShapeValues

    def value(self, index: int) -> ir.Value | None:
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def dims(self, index: int = 0) -> Dims | None:
        return dims_of(self.value(index))

    def dtype(self, index: int = 0) -> ir.DataType | None:
        value = self.value(index)
        return value.dtype if value is not None else None

    def numbers(self, index: int) -> tuple[int, ...] | None:
        return self.values.numbers(self.value(index))

    def attribute(self, name: str, default: int) -> int:
        return self.node.attributes.get_int(name, default)

    @property
    def opset(self) -> int:
        return self.values.opset(self.node)


Rule = Callable[[Site], Sequence[Typing]]
