"""5. Captured attributes and optional inputs: a parameter with the default None may be absent."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.patterns import Builder, Fusion, Op


class FuseLogSumExp(Fusion):
    """Log(ReduceSum(Exp(x))) → ReduceLogSumExp(x), over the same axes"""

    name: ClassVar[str] = "fuse-log-sum-exp"
    produces: ClassVar[tuple[str, ...]] = ("ReduceLogSumExp",)

    def match(self, op: Op, x: Any, keepdims: Any, axes: Any = None) -> Any:
        return op.Log(op.ReduceSum(op.Exp(x), axes, keepdims=keepdims))

    def replace(self, op: Builder, x: Any, keepdims: int, axes: Any = None) -> Any:
        return op.ReduceLogSumExp(x, axes, keepdims=keepdims)
