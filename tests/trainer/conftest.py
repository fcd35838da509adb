"""One thread, and one compile cache for all tests of a session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The tests share `trainer_harness`, which is beside them.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def quiet_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUSELINE_CACHE", str(tmp_path_factory.getbasetemp().parent / "fuseline-cache"))
        yield
    torch.set_num_threads(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"
