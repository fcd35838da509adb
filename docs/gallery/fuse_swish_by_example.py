"""8. A pattern by example: write a small torch function, get its ONNX pattern."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.patterns import Builder, Fusion, Op


class FuseSwishByExample(Fusion):
    """the graph of torch's x·sigmoid(x) → com.microsoft.QuickGelu<alpha=1>(x)"""

    name: ClassVar[str] = "fuse-swish-by-example"
    produces: ClassVar[tuple[str, ...]] = ("QuickGelu",)

    def match(self, op: Op, x: Any) -> Any:
        return op.example(lambda t: t * t.sigmoid(), x, shapes=[(2, 3)])

    def replace(self, op: Builder, x: Any) -> Any:
        return op.QuickGelu(x, alpha=1.0, _domain="com.microsoft")
