"""Which node before is which node after: by name first, then by structure, in linear time.

Renamed nodes are found by hashing: downwards from what is already matched (operator, attributes and inputs
agree), upwards from it (operator, attributes and users agree), and downwards again. Nodes with equal hashes
are interchangeable and are matched in graph order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from fuseline.engine.diff.content import content_hash
from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo

__all__ = ["Matching", "match"]


class Matching:
    """Pairs of node indices, and what each value before is called after."""

    def __init__(self, before: GraphInfo, after: GraphInfo, outer: Mapping[str, str]) -> None:
        self.before, self.after = before, after
        self.forward: dict[int, int] = {}
        self.backward: dict[int, int] = {}
        self.values: dict[str, str] = dict(outer)

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
    for direction in (_down, _up, _down):
        old, new = matching.unmatched()
        if not old or not new:
            break
        direction(matching, old, new)
    return matching


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
        _down_hashes(matching.before, old, translated),
        _down_hashes(matching.after, new, identity),
    )


def _down_hashes(graph: GraphInfo, indices: Sequence[int], known: Mapping[str, str]) -> dict[int, int]:
    """Hashes from inputs to outputs; graphs are in topological order, so producers come first."""
    of_value: dict[str, Hashable] = {}
    hashes: dict[int, int] = {}
    for index in indices:
        node = graph.nodes[index]
        inputs = tuple(known.get(v) or of_value.get(v) or _leaf(graph, v) for v in node.inputs)
        hashes[index] = hashed = hash((_shape_of(node), inputs))
        for position, output in enumerate(node.outputs):
            of_value[output] = (hashed, position)
    return hashes


def _up(matching: Matching, old: Sequence[int], new: Sequence[int]) -> None:
    matched_before = {i: matching.forward[i] for i in matching.forward}
    matched_after = {i: i for i in matching.backward}
    _pair_equal(
        matching,
        _up_hashes(matching.before, old, matched_before),
        _up_hashes(matching.after, new, matched_after),
    )


def _up_hashes(graph: GraphInfo, indices: Sequence[int], matched: Mapping[int, int]) -> dict[int, int]:
    """Hashes from users to producers."""
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
        hashes[index] = hash((_shape_of(node), tuple(seen)))
    return dict(reversed(hashes.items()))


def _shape_of(node: NodeInfo) -> Hashable:
    attributes = tuple((k, _hashable(node.attributes[k])) for k in sorted(node.attributes))
    inner = tuple((k, len(g.nodes), tuple(n.op for n in g.nodes)) for k, g in node.graphs.items())
    return (node.op, attributes, inner, len(node.outputs))


def _hashable(value: Any) -> Hashable:
    if isinstance(value, ir.TensorProtocol):
        return (value.dtype, content_hash(value))
    return value if isinstance(value, Hashable) else repr(value)


def _leaf(graph: GraphInfo, name: str) -> Hashable:
    """A value that no node makes and that is not matched: told by content if it has any."""
    tensor = graph.initializers.get(name)
    return content_hash(tensor) if tensor is not None else ("?", name)
