"""Which node before is which node after: by name first, then by structure, in linear time.

Renamed nodes are found by hashing: downwards from what is already matched (operator, attributes and inputs
agree), upwards from it (operator, attributes and users agree), and downwards again. Nodes with equal hashes
are interchangeable and are matched in graph order. What is left lies between changes in a renamed stretch;
it is aligned as a sequence, like lines of text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from fuseline.engine.diff.content import content_hash, is_tensor
from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo

__all__ = ["Matching", "match"]

_RUN = 3
_WINDOW = 16


class Matching:
    """Pairs of node indices, and what each value before is called after."""

    def __init__(self, before: GraphInfo, after: GraphInfo, outer: Mapping[str, str]) -> None:
        self.before, self.after = before, after
        self.forward: dict[int, int] = {}
        self.backward: dict[int, int] = {}
        self.values: dict[str, str] = dict(outer)
        self.shapes_before, self.shapes_after = _Shapes(before), _Shapes(after)

    def add(self, old: int, new: int) -> None:
        self.forward[old], self.backward[new] = new, old
        pairs = zip(self.before.nodes[old].outputs, self.after.nodes[new].outputs, strict=False)
        self.values.update((a, b) for a, b in pairs if a and b)

    def unmatched(self) -> tuple[list[int], list[int]]:
        return (
            [i for i in range(len(self.before.nodes)) if i not in self.forward],
            [i for i in range(len(self.after.nodes)) if i not in self.backward],
        )


def match(
    before: GraphInfo, after: GraphInfo, outer: Mapping[str, str], leaves: Mapping[str, str]
) -> Matching:
    """Match the nodes of two graphs. `outer` and `leaves` map value names before to names after: of enclosing
    graphs, and of this graph's inputs and initializers."""
    matching = Matching(before, after, outer)
    matching.values.update(leaves)
    _by_name(matching, lambda n: (n.op, next(iter(n.outputs), "")))
    _by_name(matching, lambda n: (n.op, n.name))
    for attempt in (_down, _up, _down, _align):
        old, new = matching.unmatched()
        new = _not_replacements(matching, old, new)
        if not old or not new:
            break
        attempt(matching, old, new)
    return matching


def _not_replacements(matching: Matching, old: Sequence[int], new: Sequence[int]) -> list[int]:
    """Without the nodes that say of themselves that they replace one that is gone: those are no renames."""
    gone = {matching.before.nodes[i].name for i in old}
    return [i for i in new if gone.isdisjoint(matching.after.nodes[i].replaces)]


def _by_name(matching: Matching, key: Callable[[NodeInfo], tuple[str, str]]) -> None:
    old, new = matching.unmatched()
    known = {key(matching.before.nodes[i]): i for i in old}
    for index in new:
        op, name = key(matching.after.nodes[index])
        found = known.pop((op, name), None) if name else None
        if found is not None:
            matching.add(found, index)


def _pair_equal(matching: Matching, old: Mapping[int, Hashable], new: Mapping[int, Hashable]) -> None:
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for index, hashed in old.items():
        groups[hashed].append(index)
    for group in groups.values():
        group.reverse()
    for index, hashed in new.items():
        if groups.get(hashed):
            matching.add(groups[hashed].pop(), index)


def _down(matching: Matching, old: Sequence[int], new: Sequence[int]) -> None:
    translated = matching.values
    identity = {name: name for name in translated.values()}
    _pair_equal(
        matching,
        _down_hashes(matching.shapes_before, old, translated),
        _down_hashes(matching.shapes_after, new, identity),
    )


def _down_hashes(shapes: _Shapes, indices: Sequence[int], known: Mapping[str, str]) -> dict[int, int]:
    """Hashes from inputs to outputs; graphs are in topological order, so producers come first."""
    graph = shapes.graph
    of_value: dict[str, Hashable] = {}
    hashes: dict[int, int] = {}
    for index in indices:
        node = graph.nodes[index]
        inputs = tuple(known.get(v) or of_value.get(v) or _leaf(graph, v) for v in node.inputs)
        hashes[index] = hashed = hash((shapes[index], inputs))
        for position, output in enumerate(node.outputs):
            of_value[output] = (hashed, position)
    return hashes


def _up(matching: Matching, old: Sequence[int], new: Sequence[int]) -> None:
    matched_before = {i: matching.forward[i] for i in matching.forward}
    matched_after = {i: i for i in matching.backward}
    _pair_equal(
        matching,
        _up_hashes(matching.shapes_before, old, matched_before),
        _up_hashes(matching.shapes_after, new, matched_after),
    )


def _up_hashes(shapes: _Shapes, indices: Sequence[int], matched: Mapping[int, int]) -> dict[int, int]:
    """Hashes from users to producers."""
    graph = shapes.graph
    users: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, node in enumerate(graph.nodes):
        for position, value in enumerate(node.inputs):
            users[value].append((index, position))
    hashes: dict[int, int] = {}
    graph_outputs = {name: position for position, name in enumerate(graph.outputs)}
    for index in reversed(indices):
        node = graph.nodes[index]
        seen = []
        for output in node.outputs:
            told = sorted((matched.get(i, -1), hashes.get(i, 0), p) for i, p in users.get(output, ()))
            seen.append((tuple(told), graph_outputs.get(output, -1)))
        hashes[index] = hash((shapes[index], tuple(seen)))
    return dict(reversed(hashes.items()))


def _align(matching: Matching, old: Sequence[int], new: Sequence[int]) -> None:
    """Pair runs of at least `_RUN` nodes that agree in order, looking ahead a little after each break."""
    before = [matching.shapes_before[i] for i in old]
    after = [matching.shapes_after[i] for i in new]
    i = j = 0
    while i < len(old) and j < len(new):
        skip = _resume(before, after, i, j)
        if skip is None:
            i, j = i + 1, j + 1
            continue
        i, j = i + skip[0], j + skip[1]
        while i < len(old) and j < len(new) and before[i] == after[j]:
            matching.add(old[i], new[j])
            i, j = i + 1, j + 1


def _resume(before: Sequence[int], after: Sequence[int], i: int, j: int) -> tuple[int, int] | None:
    """The nearest place from which `_RUN` nodes agree, as steps to skip on either side."""
    for distance in range(_WINDOW):
        for left in range(distance + 1):
            a, b = i + left, j + distance - left
            run = before[a : a + _RUN]
            if len(run) == _RUN and run == after[b : b + _RUN]:
                return left, distance - left
    return None


class _Shapes:
    """Per node, the hash of what it is regardless of names; made when needed, once."""

    def __init__(self, graph: GraphInfo) -> None:
        self.graph = graph
        self._known: dict[int, int] = {}

    def __getitem__(self, index: int) -> int:
        known = self._known.get(index)
        if known is None:
            known = self._known[index] = hash(_shape_of(self.graph.nodes[index]))
        return known


def _shape_of(node: NodeInfo) -> Hashable:
    if not node.attributes and not node.graphs:
        return (node.op, len(node.outputs))
    attributes = tuple((k, _hashable(node.attributes[k])) for k in sorted(node.attributes))
    inner = tuple((k, len(g.nodes), tuple(n.op for n in g.nodes)) for k, g in node.graphs.items())
    return (node.op, attributes, inner, len(node.outputs))


def _hashable(value: Any) -> Hashable:
    if is_tensor(value):
        return (value.dtype, content_hash(value))
    return value if isinstance(value, Hashable) else repr(value)


def _leaf(graph: GraphInfo, name: str) -> Hashable:
    """A value that no node makes and that is not matched: told by content if it has any."""
    tensor = graph.initializers.get(name)
    return content_hash(tensor) if tensor is not None else ("?", name)
