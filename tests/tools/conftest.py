"""A browser for each file of tests that looks at reports."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The tests share `browser`, which is beside them.
sys.path.insert(0, str(Path(__file__).parent))

from browser import Page, open_browser


@pytest.fixture(scope="module")
def desktop() -> Iterator[Page]:
    yield from open_browser(1280, 860)


@pytest.fixture(scope="module")
def phone() -> Iterator[Page]:
    yield from open_browser(390, 844)
