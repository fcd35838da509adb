"""A block of memory for a whole run: properties on random lifetimes, and places of a real graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuseline.engine.errors import FuselineError
from fuseline.engine.memory import Simulation, at_sizes
from fuseline.engine.memory.arena import Arena, Place, Span, lay_out, plan_arena
from fuseline.engine.model import Model

SPANS = st.lists(
    st.builds(
        lambda first, length, size: Span(f"{first}+{length}", first, first + length, size),
        st.integers(0, 40),
        st.integers(0, 20),
        st.integers(0, 5000),
    ),
    max_size=40,
)


def overlapping(arena: Arena) -> list[tuple[Place, Place]]:
    """Pairs that share a byte at some moment, found by trying all pairs at all moments."""
    found = []
    for i, one in enumerate(arena.places):
        for other in arena.places[i + 1 :]:
            moments = set(range(one.span.first, one.span.last + 1))
            together = moments & set(range(other.span.first, other.span.last + 1))
            lowest = min(one.offset + one.span.bytes, other.offset + other.span.bytes)
            if together and max(one.offset, other.offset) < lowest:
                found.append((one, other))
    return found


@given(SPANS)
def test_live_spans_never_overlap(spans: list[Span]) -> None:
    arena = lay_out(spans)
    arena.check()
    assert not overlapping(arena)
    assert [p.span for p in arena.places] == [s for s in spans if s.bytes]


@given(SPANS)
def test_the_block_lies_between_what_is_alive_and_the_sum(spans: list[Span]) -> None:
    arena = lay_out(spans)
    rounded = [-(-s.bytes // 64) * 64 for s in spans]
    assert arena.alive <= arena.size <= sum(rounded)
    moments = {moment for s in spans for moment in (s.first, s.last)}
    alive = [sum(r for s, r in zip(spans, rounded, strict=True) if s.first <= m <= s.last) for m in moments]
    assert arena.alive == max(alive, default=0)


def test_the_proof_finds_a_fault() -> None:
    faulty = Arena((Place(Span("a", 0, 3, 100), 0), Place(Span("b", 3, 5, 100), 64)))
    with pytest.raises(FuselineError, match="a and b would lie in one place at the same time"):
        faulty.check()


def test_a_chain_needs_two_places() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 20]>\n'
        "g (float[N,8] x) => (float[N,8] y) { a = Sin(x) b = Cos(a) c = Sin(b) d = Cos(c) y = Sin(d) }"
    )
    simulation = Simulation(at_sizes(Model.from_text(text), {"N": 10}))
    arena = plan_arena(simulation)
    assert {p.span.name: p.offset for p in arena.places} == {"a": 0, "b": 320, "c": 0, "d": 320, "y": 0}
    assert arena.size == simulation.peak == 640
    assert arena.fragmentation == 0
