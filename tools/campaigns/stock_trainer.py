"""transformers' own tests of its Trainer, once with the stock classes and once with ours in their place.

    python -m fuseline.tools.campaigns.stock_trainer --tests transformers/tests/trainer [--whole-step]

The tests are not part of this repository and nothing is fetched: they are those of a checkout of
transformers, best at the tag of the version that is installed. Exit 1 if a test passes with stock and fails
with ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from fuseline.engine.plurals import counted
from fuseline.tools.console import console, fail

__all__ = ["Row", "compare", "main", "share"]

_PLUGIN = "fuseline.tools.campaigns.stock_trainer_plugin"


@dataclass(frozen=True)
class Row:
    """What became of one test, and how its models ran."""

    test: str
    outcome: str
    text: str
    calls: Mapping[str, int]
    reasons: Sequence[str] = ()

    @property
    def on_graph(self) -> int:
        return sum(count for way, count in self.calls.items() if way != "torch")

    @property
    def in_torch(self) -> int:
        return self.calls.get("torch", 0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tests", type=Path, help="the folder tests/trainer of a checkout of transformers")
    parser.add_argument("--only", help="tests whose name fits, as in pytest -k")
    parser.add_argument("--file", action="append", default=[], help="a file of the folder; may be repeated")
    parser.add_argument("--whole-step", action="store_true", help="with the optimizer in the graph")
    parser.add_argument("--keep", type=Path, help="a folder for both records; stock is not run again")
    arguments = parser.parse_args()
    if arguments.tests is None or not list(arguments.tests.glob("test_trainer*.py")):
        fail(_how_to_provide(arguments.tests))
        return 2
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        files = arguments.file or sorted(p.name for p in arguments.tests.glob("test_*.py"))
        chosen = ["-k", arguments.only] if arguments.only else []
        whose = "whole-step" if arguments.whole_step else "ours"
        stock = _run("stock", arguments.tests, files, chosen, folder)
        if not any(row.outcome == "passed" for row in stock.values()):
            fail("no test passes with the stock classes: what pytest printed above says why")
            return 2
        mine = _run(whose, arguments.tests, files, chosen, folder)
        # What fails once may be the test's own: a port in use, a time limit on a busy machine.
        again = [row.test for row in compare(stock, mine)]
        if again:
            mine |= _run(whose, arguments.tests, again, [], folder, again=True)
        return _report(stock, mine)


def _how_to_provide(tests: Path | None) -> str:
    where = "no folder was given" if tests is None else f"{tests} holds no test_trainer*.py"
    return (
        f"{where}: transformers' own tests are not part of this repository and are not fetched. Check "
        f"transformers out at v{version('transformers')} or the nearest tag, and pass its folder: "
        "make stock-trainer-tests TESTS=path/to/transformers/tests/trainer"
    )


def _run(
    whose: str, tests: Path, files: Sequence[str], chosen: Sequence[str], folder: Path, again: bool = False
) -> dict[str, Row]:
    """The rows of one run; a test that ends the process is followed by a run of the rest."""
    record = (folder / f"{whose}{'-again' if again else ''}.jsonl").resolve()
    if again or whose != "stock":
        record.unlink(missing_ok=True)
    elif record.exists():
        return _read(record)
    root = tests.resolve().parents[1]
    environment = {
        **os.environ,
        "FUSELINE_STOCK_TRAINER": whose,
        "FUSELINE_STOCK_RECORD": str(record),
        "FUSELINE_CACHE": str((folder / "cache").resolve()),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
    }
    paths = [f if "::" in f else str(tests.resolve().relative_to(root) / f) for f in files]
    command = [sys.executable, "-m", "pytest", "-q", "-p", _PLUGIN, "-p", "no:cacheprovider"]
    subprocess.run([*command, "--no-header", "--tb=short", *chosen, *paths], cwd=root, env=environment)
    return _read(record)


def _read(record: Path) -> dict[str, Row]:
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    return {row.test: row for row in (Row(**json.loads(line)) for line in lines)}


def compare(stock: Mapping[str, Row], mine: Mapping[str, Row]) -> list[Row]:
    """The tests that pass with stock and do not with ours; one that left no record did not."""
    missing = Row("", "no record", "the process ended before or in it", {})
    passed = [name for name, row in stock.items() if row.outcome == "passed"]
    found = [(name, mine.get(name, missing)) for name in passed]
    return [
        Row(name, row.outcome, row.text, row.calls, row.reasons)
        for name, row in found
        if row.outcome != "passed"
    ]


def share(mine: Mapping[str, Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Tests that call a model through our trainer: all on ONNX Runtime, some calls in torch, all in torch."""
    calling = [row for row in mine.values() if row.calls]
    return (
        [r for r in calling if not r.in_torch],
        [r for r in calling if r.in_torch and r.on_graph],
        [r for r in calling if not r.on_graph],
    )


def _report(stock: Mapping[str, Row], mine: Mapping[str, Row]) -> int:
    worse = compare(stock, mine)
    for row in worse:
        console.print(f"passes with stock, {row.outcome} with ours: {row.test}\n{row.text}")
    for whose, rows in (("stock", stock), ("ours", mine)):
        outcomes = [row.outcome for row in rows.values()]
        totals = ", ".join(f"{outcomes.count(o)} {o}" for o in ("passed", "failed", "skipped"))
        console.print(f"{whose}: {counted(len(rows), 'test')}, {totals}")
    whole, partly, none = share(mine)
    calls = [sum(row.on_graph for row in mine.values()), sum(row.in_torch for row in mine.values())]
    console.print(
        f"{len(whole) + len(partly) + len(none)} tests call a model: {len(whole)} on ONNX Runtime alone, "
        f"{len(partly)} partly, {len(none)} in torch alone; of {sum(calls):,} calls "
        f"{100 * calls[0] / max(1, sum(calls)):.1f} % on ONNX Runtime"
    )
    reasons: dict[str, int] = {}
    for row in (*partly, *none):
        for reason in row.reasons or ("(no reason given)",):
            reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1]):
        console.print(f"  in torch, {counted(count, 'test')}: {reason}")
    console.print(f"{len(worse)} pass with stock and fail with ours")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
