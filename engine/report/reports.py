"""Reports that no run made: of one model, and of the difference of two."""

from __future__ import annotations

from typing import Any

from fuseline.engine.diff import Snapshot, diff
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


def report_of_diff(before: Model, after: Model, names: tuple[str, str]) -> dict[str, Any]:
    """Two models to compare, by these names."""
    history = History(" → ".join(names), names)
    history.start(Snapshot.of(before))
    history.measure(*measures(before))
    new = Snapshot.of(after)
    made = diff(history.last, new)
    sizes = [sum(len(g.nodes) for g in side.graphs()) for side in (history.last, new)]
    facts = {"index": 1, "name": names[1], "text": names[1], "changes": sum(made.counts().values())}
    history.step(PassRow({**facts, "nodes_before": sizes[0], "nodes_after": sizes[1]}), new, made)
    history.measure(*measures(after))
    return history.data()
