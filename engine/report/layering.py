"""The place of every box in its container: layers and order by Sugiyama's method, as igraph has it.

Only layer and order are decided here; the browser, which knows how large a box is drawn, makes coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import igraph

__all__ = ["Placed", "place"]

_ROUNDS = 30


class Placed(NamedTuple):
    """A child of a container: what it is, its layer from the top, and its column."""

    child: int | str
    layer: int
    column: float


def place(children: Sequence[int | str], edges: Iterable[tuple[int | str, int | str]]) -> list[Placed]:
    """Lay out the children so that edges point down and cross little; loose ones follow in rows."""
    number = {child: index for index, child in enumerate(children)}
    pairs = sorted({(number[a], number[b]) for a, b in edges if a != b})
    graph = igraph.Graph(n=len(children), edges=pairs, directed=True)
    wired = [v for v in range(len(children)) if graph.degree(v)]
    loose = [v for v in range(len(children)) if not graph.degree(v)]
    placed = _layered(children, graph.induced_subgraph(wired), wired)
    below = max((p.layer for p in placed), default=-1) + 1
    width = max(4, round(len(loose) ** 0.5))
    placed += [Placed(children[v], below + i // width, float(i % width)) for i, v in enumerate(loose)]
    return placed


def _layered(children: Sequence[int | str], graph: igraph.Graph, wired: Sequence[int]) -> list[Placed]:
    if not wired:
        return []
    layout = graph.layout_sugiyama(maxiter=_ROUNDS)
    # Behind the vertices come the bends of long edges; a column counts from the leftmost vertex.
    spots = [layout[i] for i in range(len(wired))]
    left = min(x for x, _ in spots)
    return [
        Placed(children[v], int(y), round(float(x) - left, 2)) for v, (x, y) in zip(wired, spots, strict=True)
    ]
