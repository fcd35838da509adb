"""What a process takes from malloc, counted by a library that stands in front of the C library.

Peaks counted so are the same at every run, unlike resident memory and times, and counted in the same
way for every program:

    subprocess.run([sys.executable, "-c", program], env={**os.environ, **preloaded()})

    with counted() as allocations:      # in that program
        step.run(batch)
    print(allocations.growth)
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

__all__ = ["Allocations", "counted", "counter_path", "preloaded"]

_FILE = "libfuseline_allocations.so"


@dataclass
class Allocations:
    """Bytes alive before a piece of work, and at the worst moment of it."""

    before: int = 0
    peak: int = 0

    @property
    def growth(self) -> int:
        return self.peak - self.before


@cache
def counter_path() -> Path | None:
    """Where the counter is; None where it was not built (it takes Linux with glibc)."""
    # Iterating looks into both folders of an editable install.
    found = {item.name: item for item in resources.files("fuseline.kernels").iterdir()}
    return Path(str(found[_FILE])).resolve() if _FILE in found else None


def preloaded() -> dict[str, str]:
    """The environment variables with which a program's allocations are counted."""
    path = counter_path()
    if path is None:
        raise RuntimeError("allocations are counted on Linux only, with the native library built")
    return {"LD_PRELOAD": str(path)}


@contextlib.contextmanager
def counted() -> Iterator[Allocations]:
    """The allocations of all threads while the block runs, in a program started with `preloaded()`."""
    library = _counter()
    found = Allocations(before=library.fuseline_allocations_live())
    library.fuseline_allocations_begin()
    yield found
    found.peak = library.fuseline_allocations_peak()


def _counter() -> Any:
    library = ctypes.CDLL(None)
    if not hasattr(library, "fuseline_allocations_live"):
        raise RuntimeError("this program was not started with the variables of preloaded()")
    for name in ("fuseline_allocations_live", "fuseline_allocations_peak"):
        getattr(library, name).restype = ctypes.c_int64
    return library
