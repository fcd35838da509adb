"""What an attempt has bound so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from fuseline.engine.patterns.terms import NodeTerm, Term

__all__ = ["Bindings"]


@dataclass
class Bindings:
    """Captures by name, nodes and values by term, and the nodes that no term stands for (noise, trees)."""

    captures: dict[str, Any] = field(default_factory=dict)
    nodes: dict[NodeTerm, ir.Node] = field(default_factory=dict)
    values: dict[Term, ir.Value | None] = field(default_factory=dict)
    extra: list[ir.Node] = field(default_factory=list)

    @property
    def matched(self) -> int:
        return len(self.nodes) + len(self.extra)

    def clear(self) -> None:
        self.captures.clear()
        self.nodes.clear()
        self.values.clear()
        self.extra.clear()
