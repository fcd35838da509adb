"""9. Repetition and noise: a chain of any length, and nodes in between that do not matter."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Fusion, Op


class DropRepeatedRelu(Fusion):
    """Relu(…Relu(x)) with Identity or Dropout in between → Relu(x), for inference"""

    name: ClassVar[str] = "drop-repeated-relu"
    phase: ClassVar[Phase] = "inference"
    produces: ClassVar[tuple[str, ...]] = ("Relu",)

    def match(self, op: Op, x: Any) -> Any:
        return op.repeated(
            lambda inner: op.Relu(op.through(inner, "Identity", "Dropout")), op.Relu(x), at_least=1
        )

    def replace(self, op: Builder, x: Any) -> Any:
        return op.Relu(x)
