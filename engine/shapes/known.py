"""What is known of an integer tensor that holds sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx_ir as ir

from fuseline.engine.shapes.dims import Dim, Dims, known

__all__ = ["INTEGERS", "Known"]

INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)


@dataclass(frozen=True)
class Known:
    """The elements of an integer tensor of rank 0 or 1."""

    items: Dims
    rank: int = 1
    dtype: ir.DataType = ir.DataType.INT64

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The elements if all are numbers."""
        return known(self.items)

    def wrapped(self) -> Known:
        """The same with numbers as the element type holds them: what overflows goes round."""
        half = 1 << (self.dtype.bitwidth - 1)
        if all(not isinstance(i, int) or -half <= i < half for i in self.items):
            return self
        return replace(self, items=tuple(_wrap(i, half) for i in self.items))


def _wrap(item: Dim, half: int) -> Dim:
    return (item + half) % (2 * half) - half if isinstance(item, int) else item
