"""The pytest plugin of `stock_trainer`: our trainers in the place of the stock ones, and a record of tests.

`FUSELINE_STOCK_TRAINER` says whose trainers are used (stock, ours, whole-step), `FUSELINE_STOCK_RECORD` the
file that the record goes to: a line of JSON for each test.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fuseline.tools import trainer as ours
from fuseline.tools.campaigns.recorded import calls, reasons, remember_bridges
from fuseline.tools.trainer.bridge import Bridge

__all__ = ["pytest_collect_file", "pytest_configure", "pytest_runtest_makereport", "pytest_runtest_protocol"]

_PUT_IN_PLACE = ("Trainer", "Seq2SeqTrainer", "TrainingArguments", "Seq2SeqTrainingArguments")
#: The bridges of the test that is running.
_bridges: list[Bridge] = []
_outcomes: dict[str, tuple[str, str]] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Whose trainers the tests will import."""
    whose = os.environ["FUSELINE_STOCK_TRAINER"]
    if whose == "stock":
        return
    global _bridges
    _bridges = remember_bridges()
    for name in _PUT_IN_PLACE:
        kind = getattr(ours, name)
        if whose == "whole-step" and name.endswith("Trainer"):
            kind = _with_whole_step(kind)
        setattr(_transformers(), name, kind)


def _transformers() -> Any:
    """The package as the tests will import it, which is not always the object that was imported first."""
    return sys.modules["transformers"]


def _with_whole_step(kind: type[Any]) -> type[Any]:
    class WholeStep(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{"whole_step": True, **kwargs})

    WholeStep.__name__ = kind.__name__
    return WholeStep


def pytest_collect_file(file_path: Path) -> None:
    """Tests of another version may import what this one lacks: only those that use it are left out."""
    if file_path.suffix != ".py":
        return
    package = _transformers()
    for node in ast.walk(ast.parse(file_path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "transformers":
            for alias in node.names:
                if not hasattr(package, alias.name):
                    setattr(package, alias.name, _absent(alias.name))


def _absent(name: str) -> type[Any]:
    def skip(self: Any, *args: Any, **kwargs: Any) -> None:
        pytest.skip(f"transformers {_transformers().__version__} has no {name}")

    return type(name, (), {"__init__": skip})


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    """What became of the test: its worst phase."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    known = _outcomes.get(item.nodeid, ("passed", ""))
    if known[0] != "failed" and (report.outcome != "passed" or item.nodeid not in _outcomes):
        text = "" if report.outcome == "passed" else str(report.longrepr)[-1500:]
        _outcomes[item.nodeid] = (report.outcome, text)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """One line for the test, with how its models ran."""
    _bridges.clear()
    yield
    outcome, text = _outcomes.get(item.nodeid, ("failed", "no report"))
    ran = {"calls": calls(_bridges), "reasons": reasons(_bridges)}
    row = {"test": item.nodeid, "outcome": outcome, "text": text, **ran}
    with Path(os.environ["FUSELINE_STOCK_RECORD"]).open("a", encoding="utf-8") as record:
        record.write(json.dumps(row) + "\n")
    _bridges.clear()
