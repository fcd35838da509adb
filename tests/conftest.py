"""Options and limits shared by all tests."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

from fuseline import kernels

# A busy machine draws slowly; that says nothing about what is tested.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


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


def pytest_collection_finish() -> None:
    """What was imported lives on: the many collections of garbage by torch and accelerate may skip it."""
    gc.collect()
    gc.freeze()
