"""The logarithm of a Softmax."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.patterns import Builder, Fusion, Op

__all__ = ["FuseLogSoftmax"]


class FuseLogSoftmax(Fusion):
    """Log(Softmax(x)) → LogSoftmax(x), which does not underflow"""

    name: ClassVar[str] = "fuse-log-softmax"
    produces: ClassVar[tuple[str, ...]] = ("LogSoftmax",)

    def match(self, op: Op, x: Any, axis: Any) -> Any:
        return op.Log(op.Softmax(x, axis=axis))

    def replace(self, op: Builder, x: Any, axis: int) -> Any:
        return op.LogSoftmax(x, axis=axis)
