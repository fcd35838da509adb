"""Why was this not fused? The nearest misses of a run's fusions in the graph that it left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass

__all__ = ["near_misses"]

_OF_A_FUSION = 30
_LARGEST = 20_000
"""Nodes above which nothing is looked for: a report must not take as long as the run."""


def near_misses(model: Model, passes: Iterable[Pass]) -> list[dict[str, Any]]:
    """One row a miss: the fusion, the node it began at, the node that did not fit, and both in words."""
    from fuseline.engine.patterns import Fusion, explain

    if sum(1 for _ in model.nodes()) > _LARGEST:
        return []
    fusions = {str(p): p for p in passes if isinstance(p, Fusion)}
    return [
        {"pass": label, "root": miss.root, "node": miss.node, "text": _words(miss)}
        for label, fusion in fusions.items()
        for miss in explain(fusion, model, at_most=_OF_A_FUSION).near_misses
    ]


def _words(miss: Any) -> str:
    if not miss.expected:
        return f"all {miss.size} nodes fit, but {miss.found}"
    return f"{miss.matched} of {miss.size} nodes fit, then found {miss.found}, expected {miss.expected}"
