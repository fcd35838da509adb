"""Time, changes and statistics of every pass, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from fuseline.engine.observer import Observer

if TYPE_CHECKING:
    from fuseline.engine.manager import PassRecord, Result
    from fuseline.engine.model import Model

__all__ = ["Timing"]


class Timing(Observer):
    """Collects the records of a run; `table()` shows them."""

    def __init__(self) -> None:
        self.records: list[PassRecord] = []

    def started(self, model: Model) -> None:
        self.records = []

    def after(self, record: PassRecord, model: Model) -> None:
        self.records.append(record)

    def failed(self, record: PassRecord, model: Model) -> None:
        if record not in self.records:
            self.records.append(record)

    def finished(self, result: Result) -> None:
        self.records = result.records

    @property
    def seconds(self) -> float:
        return sum(r.seconds for r in self.records)

    def table(self) -> Table:
        """One row per pass, those that changed something first, and the total."""
        table = Table(
            "#", "pass", "changes", "nodes", "ms", "statistics", title="passes", title_justify="left"
        )
        for r in sorted(self.records, key=lambda r: not (r.changes or r.error)):
            changes = "reverted" if r.reverted else "failed" if r.error else str(r.changes)
            statistics = ", ".join(f"{k} {v}" for k, v in r.statistics.items())
            table.add_row(
                str(r.step.index), r.name, changes, str(r.nodes_after), f"{r.seconds * 1e3:.1f}", statistics
            )
        table.add_row(
            "", "total", str(sum(r.changes for r in self.records)), "", f"{self.seconds * 1e3:.1f}", ""
        )
        return table
