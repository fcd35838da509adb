"""The gallery's passes: each file is loaded as a plugin and held to its golden cases."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fuseline.engine.pipeline import Pipeline
from fuseline.engine.registry import registry

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docs" / "gallery").glob("*.py"))


def _collector() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_collector", ROOT / "tests/golden/conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["golden_collector"] = module
    spec.loader.exec_module(module)
    return module


golden = _collector()


@cache
def _load(path: Path) -> None:
    """Load a plugin once: an operator's record cannot be registered twice."""
    registry.load_plugin(path)


def _cases() -> list[Any]:
    found = []
    for path in FILES:
        pipeline, cases = golden.parse(path.with_suffix(".onnxtxt").read_text())
        found.extend(pytest.param(path, pipeline, case, id=f"{path.stem}-{case.name}") for case in cases)
    return found


def test_there_are_thirteen() -> None:
    assert len(FILES) == 13


@pytest.mark.parametrize(("path", "pipeline", "case"), _cases())
def test_golden(path: Path, pipeline: str, case: Any, request: pytest.FixtureRequest) -> None:
    _load(path)
    before = golden.build(case)
    result = Pipeline.parse(pipeline).run(before)
    if "EXPECT-UNCHANGED" in case.directives:
        golden.check_unchanged(pipeline, before, result, case.directives["EXPECT-UNCHANGED"])
        return
    assert result.changes
    golden.check_settled(pipeline, result.model)
    if "NO-RUN" not in case.directives:
        golden.check_numbers(before, result.model, 0.0)
    actual = result.model.to_proto()
    if request.config.getoption("--update-golden"):
        file = path.with_suffix(".onnxtxt")
        file.write_text(golden._rewrite(file.read_text(), {case.name: golden.printed(actual, types=False)}))
        return
    expected = golden.parse_model(case.expected)
    assert golden.comparable(actual, types=False) == golden.comparable(expected, types=False)
