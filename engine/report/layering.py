"""The place of every box in its container: layers and order by Sugiyama's method, with igraph's ordering.

Only layer and order are decided here; the browser, which knows how large a box is drawn, makes coordinates.
A wire that passes layers gets a *lane* in each of them, so that it runs between boxes, not behind them; all
wires of one box share its lanes.

igraph gets connected graphs without cycles, one at a time, whose edges all lead to the next layer. Of others
it makes bends by itself, but up to 1.0 it then reads behind the end of their list, which may end the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import igraph

__all__ = ["Layout", "Placed", "place"]

_ROUNDS = 30


class Placed(NamedTuple):
    """A child of a container: what it is, its layer from the top, and its column."""

    child: int | str
    layer: int
    column: float


class Layout(NamedTuple):
    """The children of a container, and the lanes that are kept free for the wires of some of them."""

    boxes: list[Placed]
    lanes: list[Placed]


def place(children: Sequence[int | str], edges: Iterable[tuple[int | str, int | str]]) -> Layout:
    """Lay out the children so that edges point down and cross little; loose ones follow in rows."""
    number = {child: index for index, child in enumerate(children)}
    pairs = sorted({(number[a], number[b]) for a, b in edges if a != b})
    graph = igraph.Graph(n=len(children), edges=pairs, directed=True)
    parts = [sorted(part) for part in graph.connected_components(mode="weak")]
    made = Layout([], [])
    for part in (part for part in parts if len(part) > 1):
        right = max((p.column for p in (*made.boxes, *made.lanes)), default=-1.0) + 1
        boxes, lanes = _layered([children[v] for v in part], graph.induced_subgraph(part), right)
        made.boxes.extend(boxes)
        made.lanes.extend(lanes)
    loose = [part[0] for part in parts if len(part) == 1]
    below = max((p.layer for p in made.boxes), default=-1) + 1
    width = max(4, round(len(loose) ** 0.5))
    made.boxes.extend(Placed(children[v], below + i // width, float(i % width)) for i, v in enumerate(loose))
    return made


def _layered(children: Sequence[int | str], graph: igraph.Graph, left: float) -> Layout:
    directed = _downwards(graph)
    layers = _layers(directed)
    owners, edges = list(range(directed.vcount())), []
    for vertex in range(directed.vcount()):
        # One chain of lanes a box, as far as its wires reach; each wire leaves it in front of its target.
        last = vertex
        for target in sorted(directed.successors(vertex), key=layers.__getitem__):
            while layers[last] + 1 < layers[target]:
                owners.append(vertex)
                layers.append(layers[last] + 1)
                edges.append((last, len(owners) - 1))
                last = len(owners) - 1
            edges.append((last, target))
    drawn = igraph.Graph(n=len(owners), edges=edges, directed=True)
    columns = [float(x) for x, _ in drawn.layout_sugiyama(layers=layers, maxiter=_ROUNDS)]
    first = min(columns)
    placed = [
        Placed(children[owner], layer, round(left + column - first, 2))
        for owner, layer, column in zip(owners, layers, columns, strict=True)
    ]
    return Layout(placed[: len(children)], placed[len(children) :])


def _layers(graph: igraph.Graph) -> list[int]:
    """As few as there can be; what has no fewer readers than operands stands close above its readers."""
    order = graph.topological_sorting()
    layers = [0] * graph.vcount()
    for vertex in order:
        layers[vertex] = max((layers[before] + 1 for before in graph.predecessors(vertex)), default=0)
    for vertex in reversed(order):
        readers = graph.successors(vertex)
        if readers and len(readers) >= graph.indegree(vertex):
            layers[vertex] = min(layers[reader] for reader in readers) - 1
    return layers


def _downwards(graph: igraph.Graph) -> igraph.Graph:
    """The graph without cycles, which modules that feed each other make: edges that close one are turned."""
    turned = set(graph.feedback_arc_set(method="eades"))
    edges = {e.tuple[::-1] if e.index in turned else e.tuple for e in graph.es}
    return igraph.Graph(n=graph.vcount(), edges=sorted(edges), directed=True)
