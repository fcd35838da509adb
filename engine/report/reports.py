"""Reports that no run made: of one model, and of the difference of two."""

from __future__ import annotations

from typing import Any

from fuseline.engine.diff import Snapshot
from fuseline.engine.model import Model
from fuseline.engine.report.history import History, PassRow
from fuseline.engine.report.measures import measures

__all__ = ["report_of_diff", "report_of_model"]


def report_of_model(model: Model, title: str) -> dict[str, Any]:
    """A model to look at."""
    history = History(title)
    history.start(Snapshot.of(model))
    history.measure(*measures(model))
    return history.data()


def report_of_diff(before: Model, after: Model, title: str) -> dict[str, Any]:
    """Two models to compare."""
    history = History(title)
    history.start(Snapshot.of(before))
    history.measure(*measures(before))
    new = Snapshot.of(after)
    sizes = (sum(len(g) for g in model.graphs()) for model in (before, after))
    facts = {"index": 1, "name": "difference", "text": title, "changes": 1, "seconds": None}
    history.step(PassRow({**facts, **dict(zip(("nodes_before", "nodes_after"), sizes, strict=True))}), new)
    history.measure(*measures(after))
    return history.data()
