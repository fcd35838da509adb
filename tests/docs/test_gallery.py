"""The gallery's passes: each file is loaded as a plugin and held to its golden cases."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fuseline.engine.registry import registry
from fuseline.tools.golden.cases import read, update
from fuseline.tools.golden.checks import check, compare

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docs" / "gallery").glob("*.py"))


@cache
def _load(path: Path) -> None:
    """Load a plugin once: an operator's record cannot be registered twice."""
    registry.load_plugin(path)


def _cases() -> list[Any]:
    found = []
    for path in FILES:
        pipeline, cases = read(path.with_suffix(".onnxtxt"))
        found.extend(pytest.param(path, pipeline, case, id=f"{path.stem}-{case.name}") for case in cases)
    return found


def test_there_are_thirteen() -> None:
    assert len(FILES) == 13


@pytest.mark.parametrize(("path", "pipeline", "case"), _cases())
def test_golden(path: Path, pipeline: str, case: Any, request: pytest.FixtureRequest) -> None:
    _load(path)
    text = check(pipeline, case)
    if text and request.config.getoption("--update-golden"):
        update(path.with_suffix(".onnxtxt"), {case.name: text})
    elif text:
        compare(case, text)
