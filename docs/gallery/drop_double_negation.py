"""1. A two-node peephole: the pattern is code, its parameters are what it captures."""

from __future__ import annotations

from typing import Any, ClassVar

from fuseline.engine.patterns import Builder, Fusion, Op


class DropDoubleNegation(Fusion):
    """Neg(Neg(x)) → x"""

    name: ClassVar[str] = "drop-double-negation"

    def match(self, op: Op, x: Any) -> Any:
        return op.Neg(op.Neg(x))

    def replace(self, op: Builder, x: Any) -> Any:
        return x
