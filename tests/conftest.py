"""Options and limits shared by all tests."""

from __future__ import annotations

import pytest

from fuseline import kernels


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the passes make now into the golden files (then read the diff)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `native` need the library; without it (FUSELINE_KERNELS=off) all the others must pass."""
    if kernels.available():
        return
    for item in items:
        if item.get_closest_marker("native"):
            item.add_marker(pytest.mark.skip(reason="the native operators are not built"))
