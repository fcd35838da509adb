"""What the report tells: the model at every point of a run, as the first point and what each pass changed.

A node keeps its number for as long as it lives, whatever is done to it; each state of it is a *version*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuseline.engine.diff import ModelDiff, Snapshot, diff
from fuseline.engine.diff.snapshot import NodeInfo
from fuseline.engine.graph_text import attribute_text
from fuseline.engine.report.containers import Containers
from fuseline.engine.report.flat import FlatNode, Folders, flatten, initializers, interface
from fuseline.engine.report.measures import Measures
from fuseline.engine.report.rewrites import distinct
from fuseline.engine.report.weights import Weights
from fuseline.engine.rewriting.rewriter import Rewrite

__all__ = ["History", "PassRow"]

SCHEMA = "fuseline.report"
VERSION = 2


@dataclass(frozen=True)
class PassRow:
    """One pass as the timeline shows it; `facts` are the members of its row in `summary.json`."""

    facts: Mapping[str, Any]
    rewrites: Sequence[Rewrite] = ()


@dataclass
class _Point:
    """The model after a pass: node number → its version, in the order of the graph."""

    nodes: dict[int, int]
    containers: dict[str, int]
    weights: dict[str, int]
    interface: Mapping[str, Any]


@dataclass
class History:
    """Collects points. `start` once, then `step` for every pass; `data` is what the page is made from."""

    title: str
    labels: Sequence[str] = ()
    """What the points are called, where no passes lead from one to the next."""
    _versions: list[list[Any]] = field(default_factory=list)
    _points: list[dict[str, Any]] = field(default_factory=list)
    _passes: list[dict[str, Any]] = field(default_factory=list)
    _containers: Containers = field(default_factory=Containers)
    _weights: Weights = field(default_factory=Weights)
    _folders: Folders = field(default_factory=dict)
    _next: int = 0
    _sizes: dict[str, int] = field(default_factory=dict)
    _costs: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    misses: list[dict[str, Any]] = field(default_factory=list)
    """Near misses of fusions in the last point."""

    def start(self, snapshot: Snapshot) -> None:
        """The model as it came."""
        flat = flatten(snapshot, self._folders)
        self._snapshot = snapshot
        self._numbers = {id(node.info): self._fresh() for node in flat}
        self._point = _Point({}, {}, {}, {})
        self._move_to(snapshot, flat, {number: self._version(n) for n, number in self._numbered(flat)})

    def step(self, row: PassRow, snapshot: Snapshot | None = None, made: ModelDiff | None = None) -> None:
        """A pass; with a snapshot, the model it left (a reverted or idle pass leaves none)."""
        facts = dict(row.facts)
        if snapshot is not None:
            made = made if made is not None else diff(self._snapshot, snapshot)
            before, flat = self._snapshot, flatten(snapshot, self._folders)
            numbers, versions = self._follow(made, flat)
            facts["rewrites"] = distinct(row.rewrites, before, snapshot, self._numbers, numbers)
            self._numbers, self._snapshot = numbers, snapshot
            self._move_to(snapshot, flat, versions)
        facts["point"] = len(self._points) - 1
        self._passes.append(facts)

    @property
    def last(self) -> Snapshot:
        """The model at the last point."""
        return self._snapshot

    def measure(self, sizes: Mapping[str, int], found: Measures) -> None:
        """What the nodes of the last point cost, at these sizes of what the model leaves open."""
        self._sizes = dict(sizes)
        for node in flatten(self._snapshot):
            if node.info.name in found:
                self._costs[self._numbers[id(node.info)]] = found[node.info.name]

    def data(self, updates: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Everything, ready for JSON; `updates` are what became known of the passes later, in their order."""
        passes = [{**p, **u} for p, u in zip(self._passes, updates, strict=True)] if updates else self._passes
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "title": self.title,
            "labels": self.labels,
            "passes": passes,
            "versions": self._versions,
            "points": self._points,
            "layouts": [layout.boxes for layout in self._containers.layouts],
            "lanes": [layout.lanes for layout in self._containers.layouts],
            "weights": self._weights.rows,
            "sizes": self._sizes,
            "costs": self._costs,
            "misses": self.misses,
        }

    # -- following nodes from point to point

    def _follow(self, made: ModelDiff, flat: Sequence[FlatNode]) -> tuple[dict[int, int], dict[int, int]]:
        """Numbers for the nodes of the new snapshot, and the version that each is in."""
        known = _survivors(self._snapshot, made, flat)
        changed = {id(c.after) for g in made.graphs() for c in g.changed}
        numbers: dict[int, int] = {}
        versions: dict[int, int] = {}
        for node in flat:
            old = known.get(id(node.info))
            number = self._numbers[id(old)] if old is not None else self._fresh()
            numbers[id(node.info)] = number
            same = old is not None and id(node.info) not in changed
            versions[number] = self._point.nodes[number] if same else self._version(node)
        return numbers, versions

    def _numbered(self, flat: Sequence[FlatNode]) -> list[tuple[FlatNode, int]]:
        return [(node, self._numbers[id(node.info)]) for node in flat]

    def _fresh(self) -> int:
        self._next += 1
        return self._next - 1

    def _version(self, node: FlatNode) -> int:
        info = node.info
        self._versions.append(
            [
                info.name,
                info.op,
                info.inputs,
                info.outputs,
                info.types,
                {k: attribute_text(v) for k, v in info.attributes.items()},
                info.module or "",
                info.source or "",
                info.made_by or "",
                info.replaces,
                node.graph,
            ]
        )
        return len(self._versions) - 1

    def _move_to(self, snapshot: Snapshot, flat: Sequence[FlatNode], versions: dict[int, int]) -> None:
        nodes = {self._numbers[id(n.info)]: n for n in flat}
        containers = self._containers.arrange(list(nodes.items()))
        weights = self._weights.numbers(initializers(snapshot))
        point = _Point(versions, containers, weights, interface(snapshot))
        self._points.append(
            {
                "gone": [n for n in self._point.nodes if n not in versions],
                "came": [
                    [place, n, v]
                    for place, (n, v) in enumerate(versions.items())
                    if self._point.nodes.get(n) != v
                ],
                "containers": _delta(self._point.containers, containers),
                "weights": _delta(self._point.weights, weights),
                "interface": point.interface if point.interface != self._point.interface else None,
            }
        )
        self._point = point


def _survivors(before: Snapshot, made: ModelDiff, flat: Sequence[FlatNode]) -> dict[int, NodeInfo]:
    """Node after (by identity) → the node it was before."""
    found: dict[int, NodeInfo] = {}
    compared = set()
    for graph in made.graphs():
        compared.add(graph.path)
        found.update({id(graph.after.nodes[j]): graph.before.nodes[i] for i, j in graph.pairs.items()})
    # A graph without changes has no diff of its own; its nodes are the same by name.
    by_name = {(n.graph, n.info.name): n.info for n in flatten(before) if n.graph not in compared}
    for node in flat:
        if node.graph not in compared and (node.graph, node.info.name) in by_name:
            found[id(node.info)] = by_name[node.graph, node.info.name]
    return found


def _delta(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int | None]:
    changed: dict[str, int | None] = {k: v for k, v in after.items() if before.get(k) != v}
    changed.update(dict.fromkeys(k for k in before if k not in after))
    return changed
