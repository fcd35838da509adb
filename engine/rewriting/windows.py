"""Windows that slide along an axis, as slices: one for each place in the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fuseline.engine.nodes import attribute
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.shapes.dims import dims_of

__all__ = ["Window", "windows_of"]

Combine = Callable[[ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True)
class Window:
    """What slides along one axis: sizes and steps as ONNX's pooling has them."""

    axis: int
    size: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0
    ceil: bool = False
    """Whether a last window may reach beyond the end."""

    @property
    def span(self) -> int:
        return (self.size - 1) * self.dilation + 1

    @property
    def overhang(self) -> int:
        """How far a window may reach beyond the padding."""
        return self.stride - 1 if self.ceil else 0

    def combine(self, op: Builder, x: ir.Value, how: Combine, outside: float) -> ir.Value:
        """Of each window `how(first, how(second, …))`; what lies outside the axis is `outside`."""
        padded = _padded(op, x, self.axis, self.before, self.after + self.overhang, outside)
        first, *others = self._places(op, padded, self._count(op, x))
        for other in others:
            first = how(first, other)
        return first

    def elements(self, op: Builder, x: ir.Value, *, padding: bool) -> ir.Value | int:
        """How many elements each window has, to be broadcast to x; padding counts or does not."""
        counted = padding or not (self.before or self.after)
        if counted and not self.overhang:
            return self.size
        own = op.Shape(x, start=self.axis, end=self.axis + 1)
        extra = self.before + self.after if padding else 0
        ones = op.Expand(op.constant(np.ones(1, np.int64)), op.Add(own, [extra]) if extra else own)
        bare = Window(0, self.size, self.stride, self.dilation)
        ends = (0, self.overhang) if padding else (self.before, self.after + self.overhang)
        first, *others = bare._places(op, _padded(op, ones, 0, *ends, 0), self._count(op, x))
        for other in others:
            first = op.Add(first, other)
        trailing = len(dims_of(x) or ()) - 1 - self.axis
        counts = op.Unsqueeze(first, list(range(1, trailing + 1))) if trailing else first
        assert x.dtype is not None
        return op.Cast(counts, to=x.dtype.value)

    def _places(self, op: Builder, padded: ir.Value, count: ir.Value | int) -> Iterator[ir.Value]:
        for place in range(self.size):
            start = place * self.dilation
            yield op.Slice(padded, [start], self._end(op, start, count), [self.axis], [self.stride])

    def _end(self, op: Builder, start: int, count: ir.Value | int) -> ir.Value | list[int]:
        if isinstance(count, int):
            return [start + (count - 1) * self.stride + 1]
        return op.Add(op.Mul(count, [self.stride]), [start + 1 - self.stride])

    def _count(self, op: Builder, x: ir.Value) -> ir.Value | int:
        """How many windows there are; one that would begin beyond the end and its padding is none."""
        dims = dims_of(x)
        length = dims[self.axis] if dims is not None else None
        room = self.before + self.after - self.span + self.overhang
        if isinstance(length, int):
            count = (length + room) // self.stride + 1
            return count - 1 if self.ceil and (count - 1) * self.stride >= length + self.before else count
        own = op.Shape(x, start=self.axis, end=self.axis + 1)
        found = op.Add(op.Div(op.Add(own, [room]), [self.stride]), [1])
        if not self.ceil:
            return found
        # Windows begin at multiples of the stride in front of the end.
        begins = op.Div(op.Add(own, [self.before + self.stride - 1]), [self.stride])
        return op.Min(found, begins)


def windows_of(node: ir.Node) -> list[Window] | str:
    """The windows of a pooling node, one for each axis behind the channels; or why they cannot be told."""
    dims = dims_of(node.inputs[0])
    if dims is None:
        return "the number of axes is not known"
    kernel = list(attribute(node, "kernel_shape", ()))
    axes = len(kernel)
    ones = [1] * axes
    strides, dilations = (list(attribute(node, name, ones)) for name in ("strides", "dilations"))
    pads = list(attribute(node, "pads", [0] * 2 * axes))
    auto = attribute(node, "auto_pad", "NOTSET")
    found = []
    for i, size in enumerate(kernel):
        before, after = pads[i], pads[axes + i]
        window = Window(2 + i, size, strides[i], dilations[i], ceil=bool(attribute(node, "ceil_mode", 0)))
        if auto == "VALID":
            before = after = 0
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            total = _same(window, dims[2 + i])
            if total is None:
                return f"its padding depends on the size {dims[2 + i]!r}"
            before, after = total // 2, total - total // 2
            if auto == "SAME_LOWER":
                before, after = after, before
        ceil = window.ceil and auto == "NOTSET"
        found.append(Window(2 + i, size, strides[i], dilations[i], before, after, ceil))
    return found


def _same(window: Window, length: object) -> int | None:
    """The padding with which there is a window for each step."""
    if window.stride == 1:
        return window.span - 1
    if not isinstance(length, int):
        return None
    return max((-(-length // window.stride) - 1) * window.stride + window.span - length, 0)


def _padded(op: Builder, x: ir.Value, axis: int, before: int, after: int, outside: float) -> ir.Value:
    if not (before or after):
        return x
    rank = len(dims_of(x) or ())
    pads = np.zeros(2 * rank, np.int64)
    pads[axis], pads[rank + axis] = before, after
    return op.Pad(x, pads, outside) if outside else op.Pad(x, pads)
