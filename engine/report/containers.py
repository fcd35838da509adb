"""What is drawn in which box: the tree of modules at one point, and the place of every child in its box.

Long stretches without modules (most third-party files) are cut into segments, so that no box holds more than
a screenful. A node stays in the segment that it was first put in; one that comes later joins the segment of
the node in front of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fuseline.engine.report.flat import SEPARATOR, FlatNode, enclosing, holder
from fuseline.engine.report.layering import Layout, place

__all__ = ["Containers"]

_MOST_IN_A_BOX = 100
_SEGMENT = 50

Child = int | str
"""The number of a node, or the path of a container."""


@dataclass
class Containers:
    """Remembers segments and layouts from point to point; equal boxes are laid out once."""

    layouts: list[Layout] = field(default_factory=list)
    _known: dict[Hashable, int] = field(default_factory=dict)
    _segment: dict[int, str] = field(default_factory=dict)
    _segments: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def arrange(self, nodes: Sequence[tuple[int, FlatNode]]) -> dict[str, int]:
        """Container → the number of its layout; '' is the outermost."""
        shown = [(uid, node) for uid, node in nodes if node.info.op != "Constant"]
        homes = self._homes(shown)
        chains = {uid: _chain(uid, home) for uid, home in homes.items()}
        children: dict[str, dict[Child, int]] = defaultdict(dict)
        for chain in chains.values():
            for outer, inner in pairwise(chain):
                children[str(outer)].setdefault(inner, len(children[str(outer)]))
        edges = _edges(shown, chains)
        return {
            path: self._layout(list(inside), edges.get(path, frozenset()))
            for path, inside in children.items()
        }

    def _homes(self, shown: Sequence[tuple[int, FlatNode]]) -> dict[int, str]:
        crowd: dict[str, int] = defaultdict(int)
        for _, node in shown:
            crowd[node.container] += 1
        homes: dict[int, str] = {}
        last: dict[str, str] = {}
        for uid, node in shown:
            container = node.container
            if uid not in self._segment and (crowd[container] > _MOST_IN_A_BOX or container in last):
                self._segment[uid] = self._next_segment(container, last.get(container))
            segment = self._segment.get(uid)
            if segment is not None and segment.rpartition(SEPARATOR)[0] == container:
                last[container] = homes[uid] = segment
            else:
                homes[uid] = container
        return homes

    def _next_segment(self, container: str, current: str | None) -> str:
        if current is not None and self._segments[current] < _SEGMENT:
            self._segments[current] += 1
            return current
        counter = f"{container}{SEPARATOR}"
        self._segments[counter] += 1
        made = f"{counter if container else ''}part {self._segments[counter]}"
        self._segments[made] = 1
        return made

    def _layout(self, inside: Sequence[Child], edges: frozenset[tuple[Child, Child]]) -> int:
        key = (tuple(inside), edges)
        if key not in self._known:
            self._known[key] = len(self.layouts)
            self.layouts.append(place(inside, edges))
        return self._known[key]


def _chain(uid: int, home: str) -> tuple[Child, ...]:
    """The containers around a node from the outermost, then the node."""
    parts = home.split(SEPARATOR) if home else []
    return ("", *(SEPARATOR.join(parts[: i + 1]) for i in range(len(parts))), uid)


def _edges(
    shown: Sequence[tuple[int, FlatNode]], chains: Mapping[int, tuple[Child, ...]]
) -> dict[str, frozenset[tuple[Child, Child]]]:
    """Container → which of its children read which."""
    found: dict[str, set[tuple[Child, Child]]] = defaultdict(set)
    for source, target in _wires(shown):
        one, other = chains[source], chains[target]
        depth = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        found[str(one[depth - 1])].add((one[depth], other[depth]))
    return {path: frozenset(pairs) for path, pairs in found.items()}


def _wires(shown: Sequence[tuple[int, FlatNode]]) -> Iterator[tuple[int, int]]:
    """Which node reads which. What nobody reads inside a branch or a body goes to the node that holds it."""
    maker = {(node.graph, name): uid for uid, node in shown for name in node.info.outputs if name}
    named = {(node.graph, node.info.name): uid for uid, node in shown}
    read = set()
    for uid, node in shown:
        for name in filter(None, node.info.inputs):
            source = next((maker[g, name] for g in enclosing(node.graph) if (g, name) in maker), uid)
            if source != uid:
                read.add(source)
                yield source, uid
    for uid, node in shown:
        outer = named.get(holder(node.graph))
        if outer is not None and uid not in read:
            yield uid, outer
