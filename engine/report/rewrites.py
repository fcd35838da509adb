"""The distinct rewrites of a pass: those whose nodes and wiring are alike are drawn once, with all places."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

from fuseline.engine.diff.snapshot import NodeInfo, Snapshot
from fuseline.engine.graph_text import attribute_text, scalars
from fuseline.engine.report.flat import enclosing, flatten
from fuseline.engine.report.layering import place
from fuseline.engine.rewriting.rewriter import Rewrite

__all__ = ["distinct"]

_LARGEST_DRAWING = 40
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def distinct(
    rewrites: Sequence[Rewrite],
    before: Snapshot,
    after: Snapshot,
    numbers_before: Mapping[int, int],
    numbers_after: Mapping[int, int],
) -> list[dict[str, Any]]:
    """One entry a kind of rewrite, the most frequent first."""
    old, new = _Side(before, numbers_before), _Side(after, numbers_after)
    groups: dict[Hashable, dict[str, Any]] = {}
    for rewrite in rewrites:
        went, came = old.nodes(rewrite.removed), new.nodes(rewrite.added)
        drawings = old.draw(went), new.draw(came)
        key = (rewrite.note if not (went or came) else "", drawings[0].key, drawings[1].key)
        group = groups.setdefault(
            key,
            {
                "note": rewrite.note,
                "before": drawings[0].picture,
                "after": drawings[1].picture,
                "places": [],
            },
        )
        group["places"].append(
            {
                "site": rewrite.site,
                "module": next((n.module for n in (*went, *came) if n.module), ""),
                "before": old.numbers(went),
                "after": new.numbers(came) or new.numbers(new.nodes([rewrite.site])),
            }
        )
    return sorted(groups.values(), key=lambda g: -len(g["places"]))


@dataclass(frozen=True)
class _Drawing:
    """A small graph: `key` is equal for drawings that look alike, `picture` is what the page draws."""

    key: Hashable
    picture: dict[str, Any] | None


class _Side:
    """The model before or after the pass."""

    def __init__(self, snapshot: Snapshot, numbers: Mapping[int, int]) -> None:
        flat = flatten(snapshot)
        self._by_name = {n.info.name: n.info for n in flat}
        self._graph = {id(n.info): n.graph for n in flat}
        self._numbers = numbers
        # By graph: two branches may use one name for different numbers.
        self._scalars = {graph.path: scalars(graph) for graph in snapshot.graphs()}

    def nodes(self, names: Sequence[str]) -> list[NodeInfo]:
        return [self._by_name[name] for name in names if name in self._by_name]

    def numbers(self, nodes: Sequence[NodeInfo]) -> list[int]:
        return [self._numbers[id(node)] for node in nodes if id(node) in self._numbers]

    def draw(self, nodes: Sequence[NodeInfo]) -> _Drawing:
        if not nodes:
            return _Drawing((), None)
        if len(nodes) > _LARGEST_DRAWING:
            counts: dict[str, int] = {}
            for node in nodes:
                counts[node.op] = counts.get(node.op, 0) + 1
            return _Drawing(tuple(sorted(counts.items())), {"counts": counts})
        # A constant stands for its number in the node that reads it; where it is all there is, it is drawn.
        return self._picture(_in_order([n for n in nodes if n.op != "Constant"] or nodes))

    def _picture(self, nodes: Sequence[NodeInfo]) -> _Drawing:
        maker = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
        letters: dict[str, str] = {}
        rows, edges = [], []
        for index, node in enumerate(nodes):
            operands = []
            for name in node.inputs:
                if name in maker and maker[name] != index:
                    edges.append((maker[name], index))
                    operands.append(f"#{maker[name]}")
                elif name:
                    operands.append(self._outside(node, name, letters))
                else:
                    operands.append("_")
            attributes = {k: attribute_text(v) for k, v in node.attributes.items()}
            rows.append((node.op, tuple(operands), tuple(sorted(attributes.items()))))
        layout = place(range(len(nodes)), edges)
        spots = {p.child: (p.layer, p.column) for p in layout.boxes}
        picture = {
            "nodes": [
                {"op": op, "operands": operands, "attributes": dict(attributes), "at": spots[i]}
                for i, (op, operands, attributes) in enumerate(rows)
            ],
            "edges": sorted(set(edges)),
            "lanes": layout.lanes,
        }
        return _Drawing(tuple(rows), picture)

    def _outside(self, node: NodeInfo, name: str, letters: dict[str, str]) -> str:
        """A number stands for itself; any other value from outside is called a, b, c … as it appears."""
        for path in enclosing(self._graph[id(node)]):
            if name in self._scalars.get(path, {}):
                return self._scalars[path][name]
        number = len(letters)
        return letters.setdefault(name, _LETTERS[number % 26] + ("" if number < 26 else str(number // 26)))


def _in_order(nodes: Sequence[NodeInfo]) -> list[NodeInfo]:
    """Producers before users: the rewriter removes from the end and adds from the front."""
    maker = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    wiring: nx.DiGraph[int] = nx.DiGraph()
    wiring.add_nodes_from(range(len(nodes)))
    wiring.add_edges_from((maker[o], i) for i, node in enumerate(nodes) for o in node.inputs if o in maker)
    return [nodes[i] for i in nx.lexicographical_topological_sort(wiring)]
