"""Places of a recorded run: nothing that is alive shares a byte, and what outlives the run is outside."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fuseline.engine.execution import block

#: Pieces of memory: bytes, and how many later pieces they see taken; None: they outlive the run.
PIECES = st.lists(st.tuples(st.integers(1, 4096), st.none() | st.integers(0, 12)), min_size=1, max_size=60)


@given(PIECES)
def test_a_repeated_run_never_overlaps(pieces: list[tuple[int, int | None]]) -> None:
    sizes = np.array([size for size, _ in pieces], np.int64)
    first = 2 * np.arange(len(pieces), dtype=np.int64)
    ends = [-1 if life is None else 2 * (i + life) + 1 for i, (_, life) in enumerate(pieces)]
    places = block._places(sizes, first, np.array(ends, np.int64))
    alive: dict[int, tuple[int, int]] = {}
    for index, (size, life) in enumerate(pieces):
        alive = {other: span for other, span in alive.items() if ends[other] >= first[index]}
        offset = int(places.offsets[index])
        assert (offset == -1) == (life is None)
        if life is None:
            continue
        assert offset % 64 == 0
        assert offset + size <= places.size
        assert all(offset + size <= begin or end <= offset for begin, end in alive.values())
        alive[index] = (offset, offset + size)
