"""One block of memory for a run, in which every value has a fixed place.

The first run on new shapes is recorded; what it takes lies in the block already where there is room. Where
there was none, places are found for what it took, and runs on the same shapes repeat it there. Memory is
then neither asked for nor given back, and no more of it is held than is alive at once, up to the gaps.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.memory.arena import Span, lay_out
from fuseline.engine.operators import libraries

__all__ = ["Block", "allocator"]

Numbers = npt.NDArray[np.int64]
_OUTSIDE, _ANYWHERE = -1, -2
_ATTEMPTS = 8
"""A graph whose runs differ more often, because sizes depend on contents, has no places."""


@cache
def allocator() -> Any:
    """The library that gives the runtime its memory; None where it cannot.

    To be asked once a session's options know the operators: by them the library gets to know the runtime.
    """
    for path in libraries():
        library = ctypes.CDLL(str(path))
        if hasattr(library, "fuseline_block_install"):
            library.fuseline_block_install.restype = ctypes.c_char_p
            return library if not library.fuseline_block_install() and _known(library) else None
    return None


def _known(library: Any) -> bool:
    """Whether the library knows the runtime's allocator, which is made to ask for memory."""
    import onnxruntime as ort

    library.fuseline_block_watch(1)
    ort.OrtValue.ortvalue_from_shape_and_type((16,), np.float32)
    return bool(library.fuseline_block_watch(0))


@dataclass(frozen=True)
class _Places:
    """What a run takes, piece by piece, and where each lies; what outlives the run lies outside."""

    bytes: Numbers
    offsets: Numbers
    size: int


class Block:
    """The places of one session's runs, by the shapes of what they are fed; the block itself is shared."""

    def __init__(self, library: Any, capacity: int = 32) -> None:
        self._library = library
        self._capacity = capacity
        self._places: OrderedDict[Hashable, _Places] = OrderedDict()
        self._fading: _Places | None = None
        """Which pieces end within a run, from the last one that was recorded: they may lie anywhere."""
        self._lost = 0
        """How often a run on known shapes was another than the one that was recorded."""
        self.placed = 0
        """How many pieces of memory the last run took in the block."""
        self.size = 0
        """Bytes of the block that the last run needed; 0 where its pieces had no places of their own."""

    @contextlib.contextmanager
    def run(self, shapes: Hashable) -> Iterator[None]:
        """Around a run on these shapes, in its thread."""
        known = self._places.get(shapes)
        given = known or self._fading or _NOTHING
        recording = known is None and self._lost <= _ATTEMPTS
        begun = self._library.fuseline_block_begin(
            ctypes.c_int64(len(given.bytes)),
            _pointer(given.bytes),
            _pointer(given.offsets),
            ctypes.c_int64(given.size),
            ctypes.c_int(recording),
        )
        finished = False
        try:
            yield
            finished = True
        finally:
            placed, overflowed, recorded = (ctypes.c_int64() for _ in range(3))
            self._library.fuseline_block_end(
                ctypes.byref(placed), ctypes.byref(overflowed), ctypes.byref(recorded)
            )
            self.placed, self.size = placed.value, known.size if known and begun else 0
            if recording:
                self._learn(shapes, recorded.value, room=bool(begun) and not overflowed.value, whole=finished)
            elif known is not None and overflowed.value:
                del self._places[shapes]
                self._lost += 1
            elif known is not None:
                self._places.move_to_end(shapes)

    def _learn(self, shapes: Hashable, count: int, *, room: bool, whole: bool) -> None:
        """Find places for a recorded run, where there was not room enough for what it took."""
        bytes_, first, last = (np.zeros(count, np.int64) for _ in range(3))
        self._library.fuseline_block_pieces(_pointer(bytes_), _pointer(first), _pointer(last))
        if not whole or (room and self._fading is not None):
            return
        self._fading = _Places(bytes_, np.where(last == _OUTSIDE, _OUTSIDE, _ANYWHERE), 0)
        self._places[shapes] = _places(bytes_, first, last)
        while len(self._places) > self._capacity:
            self._places.popitem(last=False)


def _places(bytes_: Numbers, first: Numbers, last: Numbers) -> _Places:
    inside = np.flatnonzero(last != _OUTSIDE)
    arena = lay_out([Span(str(i), int(first[i]), int(last[i]), int(bytes_[i])) for i in inside])
    arena.check()
    offsets = np.full(len(bytes_), _OUTSIDE, np.int64)
    offsets[inside] = [place.offset for place in arena.places]
    return _Places(bytes_, offsets, arena.size)


def _pointer(array: Numbers) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))


_NOTHING = _Places(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
