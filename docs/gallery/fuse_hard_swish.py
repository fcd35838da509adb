"""4. Attributes as conditions: the numbers of HardSigmoid must be those of HardSwish."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.patterns import Builder, Fusion, Op


class FuseHardSwish(Fusion):
    """x·HardSigmoid<alpha=1/6, beta=1/2>(x) → HardSwish(x)"""

    name: ClassVar[str] = "fuse-hard-swish"
    produces: ClassVar[tuple[str, ...]] = ("HardSwish",)

    def match(self, op: Op, x: Any) -> Any:
        return op.Mul(x, op.HardSigmoid(x, alpha=1 / 6, beta=0.5))

    def replace(self, op: Builder, x: Any) -> Any:
        return op.HardSwish(x)
