"""A folder with `NNN-pass-name.diff` and `.json` for passes that changed something, and a report of all."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuseline.engine.diff import ModelDiff, Snapshot, diff
from fuseline.engine.diff.as_json import to_json
from fuseline.engine.diff.text import to_text
from fuseline.engine.errors import FuselineError
from fuseline.engine.observer import Observer
from fuseline.engine.outputs import check_output_folder
from fuseline.engine.report import History, PassRow, write_page
from fuseline.engine.report.measures import measures
from fuseline.engine.report.misses import near_misses
from fuseline.engine.report.page import partial

if TYPE_CHECKING:
    from fuseline.engine.manager import PassRecord, Result
    from fuseline.engine.model import Model

__all__ = ["DumpDiffs"]

REPORT = "report.html"
SUMMARY = "summary.json"
SCHEMA = "fuseline.dump"
VERSION = 1
_KNOWN_LATER = ("reverted", "verification", "difference")


class DumpDiffs(Observer):
    """Writes a diff per changing pass, `summary.json` about every pass, and `report.html` to look at it all.

    An earlier dump in the folder is replaced; files that no dump wrote are never touched: the run is refused.
    """

    def __init__(self, folder: str | Path, *, title: str | None = None) -> None:
        self.folder = Path(folder)
        self.title = title or self.folder.name
        self._files: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._whole = False  # whether all that is known so far fits together

    def started(self, model: Model) -> None:
        self._whole = False
        _prepare(self.folder)
        self._files, self._rows = [SUMMARY, REPORT], []
        self._before = self._current = Snapshot.of(model)
        self._written = 0
        self._reported = -1  # how many passes the report tells of
        self._history = History(self.title)
        self._history.start(self._current)
        self._history.measure(*measures(model))
        self._pending: tuple[PassRow, Snapshot | None, ModelDiff | None] | None = None
        self._write_summary()
        self._whole = True

    def after(self, record: PassRecord, model: Model) -> None:
        files: list[str] = []
        self._whole = False
        self._settle()
        if record.changes:
            self._before, self._current = self._current, Snapshot.of(model)
            self._written = record.step.index
            made = diff(self._before, self._current)
            files = self._write_diff(record, made)
            self._pending = (PassRow(_row(record, files), record.rewrites), self._current, made)
        else:
            self._pending = (PassRow(_row(record, files)), None, None)
        self._rows.append(_row(record, files))
        self._whole = True

    def failed(self, record: PassRecord, model: Model) -> None:
        self._whole = False
        if self._rows and self._rows[-1]["index"] == record.step.index:
            # The diff is written; a gate that ran after it refused the pass.
            files = self._rows.pop()["files"]
            if self._written == record.step.index:
                self._current = self._before
        else:
            self._settle()
            made = diff(self._current, Snapshot.of(model))
            files = self._write_diff(record, made) if made else []
        self._rows.append(_row(record, files))
        self._pending = (PassRow(_row(record, files)), None, None)
        self._whole = True
        self._write_report()
        self._write_summary()

    def finished(self, result: Result) -> None:
        for row, record in zip(self._rows, result.records, strict=True):
            row["reverted"] = record.reverted
            row["verification"] = record.verification
            row["difference"] = record.difference
        self._settle()
        self._history.measure(*measures(result.model))
        self._history.misses = near_misses(result.model, [r.step.pass_ for r in result.records])
        self._write_report()
        self._write_summary()

    def stopped(self) -> None:
        # What failed or was interrupted has a report too, of the passes before that.
        if self._whole and self._reported < len(self._rows):
            self._write_report()
            self._write_summary()

    def _settle(self) -> None:
        """Take the last pass into the report: no gate refuses it any more."""
        if self._pending is not None:
            row, snapshot, made = self._pending
            self._history.step(row, snapshot, made)
            self._pending = None

    def _write_report(self) -> None:
        self._settle()
        self._reported = len(self._rows)
        later = [{key: row.get(key) for key in _KNOWN_LATER} for row in self._rows]
        write_page(self._history.data(later), self.folder / REPORT)

    def _write_diff(self, record: PassRecord, made: ModelDiff) -> list[str]:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", record.name)
        stem = f"{record.step.index:03d}-{name}"
        head = f"pass {record.step.index}: {record.step.pass_}\n"
        if record.error is not None:
            head += f"failed: {record.error.message}\n"
        rewrites = [asdict(r) for r in record.rewrites]
        contents = {
            f"{stem}.diff": head + to_text(made),
            f"{stem}.json": to_json(made, {"pass": _row(record, []), "rewrites": rewrites}),
        }
        # Listed before they exist, so that an interrupted run leaves nothing foreign behind.
        self._files.extend(contents)
        self._write_summary()
        for file, content in contents.items():
            (self.folder / file).write_text(content, encoding="utf-8")
        return list(contents)

    def _write_summary(self) -> None:
        data = {"schema": SCHEMA, "version": VERSION, "passes": self._rows, "files": self._files}
        (self.folder / SUMMARY).write_text(
            json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def _row(record: PassRecord, files: list[str]) -> dict[str, Any]:
    return {
        "index": record.step.index,
        "name": record.name,
        "text": str(record.step.pass_),
        "summary": record.step.pass_.summary(),
        "changes": record.changes,
        "seconds": round(record.seconds, 6),
        "nodes_before": record.nodes_before,
        "nodes_after": record.nodes_after,
        "statistics": record.statistics,
        "rejections": [asdict(r) for r in record.rejections],
        "error": record.error.message if record.error else None,
        "reverted": record.reverted,
        "verification": record.verification,
        "difference": record.difference,
        "files": files,
    }


def _prepare(folder: Path) -> None:
    """Make the folder, or empty it of an earlier dump."""
    check_output_folder(folder)
    ours = _files_of_earlier_dump(folder)
    present = {entry.name for entry in folder.iterdir()}
    foreign = sorted(present - ours)
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise FuselineError(
            f"the dump folder {folder} holds files that are not from a dump: {', '.join(foreign[:3])}{more}",
            hint="choose an empty folder, or remove them yourself",
        )
    for name in present - {SUMMARY}:
        (folder / name).unlink()


def _files_of_earlier_dump(folder: Path) -> set[str]:
    try:
        data = json.loads((folder / SUMMARY).read_text())
    except (OSError, ValueError):
        return set()
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        return set()
    return {str(name) for name in data.get("files", ())} | {partial(folder / REPORT).name}
