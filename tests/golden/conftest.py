"""The collector of golden files: each case is a test of its own. The machinery is `fuseline.tools.golden`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fuseline.tools.golden.cases import Case, read, update
from fuseline.tools.golden.checks import Failed, check, compare


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".onnxtxt":
        collector: pytest.Collector = GoldenFile.from_parent(parent, path=file_path)
        return collector
    return None


class GoldenFile(pytest.File):
    """All cases of one file."""

    updates: dict[str, str]

    def collect(self) -> Iterator[pytest.Item]:
        pipeline, cases = read(self.path)
        self.updates = {}
        for case in cases:
            item = GoldenItem.from_parent(self, name=case.name, pipeline=pipeline, case=case)
            if "NATIVE" in case.directives:
                item.add_marker(pytest.mark.native)
            yield item

    def teardown(self) -> None:
        if self.updates:
            update(self.path, self.updates)


class GoldenItem(pytest.Item):
    """One case."""

    def __init__(self, *, pipeline: str, case: Case, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline, self.case = pipeline, case

    def runtest(self) -> None:
        text = check(self.pipeline, self.case)
        if text and self.config.getoption("--update-golden"):
            assert isinstance(self.parent, GoldenFile)
            self.parent.updates[self.case.name] = text
        elif text:
            compare(self.case, text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if excinfo.errisinstance(Failed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.stem}::{self.name}"
