"""What a pass changes the graph with: every rewrite is counted, traced, and can be withheld.

A pass asks `permit` before each rewrite. That makes a pass bisectable down to the single rewrite: with a
limit of n, the n-th and later requests are refused and the pass has to leave that place alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import onnx_ir as ir

from fuseline.engine.analysis.analyses import Analyses, Analysis, Kind
from fuseline.engine.model import Model
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.checks import check_node, check_replacement, import_domain
from fuseline.engine.rewriting.forms import Inexpressible

__all__ = ["MODULE_KEY", "PASS_KEY", "REPLACES_KEY", "SOURCE_KEY", "Rejection", "Rewrite", "Rewriter"]

PASS_KEY = "fuseline.pass"
REPLACES_KEY = "fuseline.replaces"
MODULE_KEY = "fuseline.module"
SOURCE_KEY = "fuseline.source"


@dataclass
class Rewrite:
    """One rewrite: where, what it was, and the nodes that went and came."""

    site: str
    note: str
    removed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Rejection:
    """A place where a pass could have applied but did not, and why."""

    site: str
    reason: str


class Rewriter:
    """Counts and traces the rewrites of one run of one pass."""

    def __init__(
        self,
        model: Model,
        pass_name: str,
        *,
        limit: int | None = None,
        analyses: Analyses | None = None,
        preserves: Collection[type[Analysis]] = (),
    ) -> None:
        self.model = model
        self._analyses = analyses if analyses is not None else Analyses(model)
        self._preserves = preserves
        self.pass_name = pass_name
        self.limit = limit
        self.rewrites: list[Rewrite] = []
        self.rejections: list[Rejection] = []
        self.statistics: Counter[str] = Counter()
        self._taken: set[str] = set()
        self._seen_graphs: set[int] = set()
        self._numbers: Counter[str] = Counter()
        self._named: set[ir.Node] = set()

    @property
    def changes(self) -> int:
        return len(self.rewrites)

    def permit(self, site: ir.Node | str, note: str = "") -> bool:
        """Ask for one rewrite at `site`; if granted, node changes until the next request belong to it."""
        if self.limit is not None and self.changes >= self.limit:
            return False
        self._analyses.forget(self._preserves)
        self.rewrites.append(Rewrite(site if isinstance(site, str) else site.name or site.op_type, note))
        return True

    def reject(self, site: ir.Node, reason: str) -> None:
        """Record why a place that nearly fitted was left alone."""
        self.rejections.append(Rejection(site.name or site.op_type, reason))

    def analysis(self, kind: type[Kind]) -> Kind:
        """What is known about the model as it is now, worked out unless an earlier pass has done so."""
        return self._analyses.get(kind)

    def withdraw(self, site: ir.Node, reason: str) -> None:
        """Give back the last permission, because the rewrite cannot be expressed here."""
        self.rewrites.pop()
        self.reject(site, reason)

    def count(self, statistic: str, amount: int = 1) -> None:
        self.statistics[statistic] += amount

    # -- graph changes

    def builder(self, place: ir.Node | ir.Graph) -> Builder:
        """What makes nodes for a place: `insert` or `replace` puts them there."""
        return Builder(self, place)

    @contextmanager
    def building(self, node: ir.Node) -> Iterator[Builder]:
        """The builder for a permitted rewrite of a node; what it makes is put in place within the block.

        If that cannot be expressed in the opset and types at hand, the node stays, with the reason.
        """
        op = self.builder(node)
        try:
            yield op
        except Inexpressible as error:
            op.discard()
            self.withdraw(node, error.message)

    def replace(
        self, old: Sequence[ir.Node], new: Sequence[ir.Node], values: Iterable[tuple[ir.Value, ir.Value]]
    ) -> None:
        """Put `new` in place of `old` (whose last node marks the spot); `values` are (old, new) pairs.

        Old nodes are removed if nothing uses them any more; each new node remembers what it replaces.
        """
        anchor = old[-1]
        self.insert(anchor, new, replaces=old)
        for before, after in values:
            self.redirect(before, after)
        self.remove(*reversed(old))

    def insert(self, anchor: ir.Node, new: Sequence[ir.Node], *, replaces: Sequence[ir.Node] = ()) -> None:
        """Insert nodes before `anchor` with names and provenance."""
        graph = anchor.graph
        assert isinstance(graph, ir.Graph)
        for node in new:
            self.adopt(graph, node, replaces=replaces or (anchor,))
        graph.insert_before(anchor, new)

    def append(self, graph: ir.Graph, new: Sequence[ir.Node], *, replaces: Sequence[ir.Node] = ()) -> None:
        """Put nodes at the end of a graph, with names and provenance."""
        for node in new:
            self.adopt(graph, node, replaces=replaces)
        graph.extend(new)

    def adopt(self, graph: ir.Graph, node: ir.Node, *, replaces: Sequence[ir.Node]) -> None:
        """Name and check a new node, and note where it comes from."""
        self._analyses.forget(self._preserves)
        self.name(graph, node)
        check_node(self.model, node, graph)
        import_domain(self.model, graph, node.domain)
        node.metadata_props[PASS_KEY] = self.pass_name
        node.metadata_props[REPLACES_KEY] = json.dumps([n.name for n in replaces])
        for key in (MODULE_KEY, SOURCE_KEY):
            inherited = next((n.metadata_props[key] for n in replaces if key in n.metadata_props), None)
            if inherited is not None:
                node.metadata_props.setdefault(key, inherited)
        if self.rewrites:
            self.rewrites[-1].added.append(str(node.name))

    def name(self, graph: ir.Graph, node: ir.Node) -> None:
        """Name a new node and its outputs, once."""
        if node in self._named:
            return
        self._named.add(node)
        node.name = self.fresh_name(graph, node.name or f"{self.pass_name}/{node.op_type}")
        for index, value in enumerate(node.outputs):
            if value.name is None:
                suffix = f"_{index}" if len(node.outputs) > 1 else ""
                value.name = self.fresh_name(graph, f"{node.name}{suffix}")

    def fresh_name(self, graph: ir.Graph, stem: str) -> str:
        """A name that no node or value of the graph has; it counts as taken from now on."""
        taken = self._names(graph)
        name = stem
        while name in taken:
            # Counting on from the last number keeps many nodes of one stem linear.
            self._numbers[stem] += 1
            name = f"{stem}_{self._numbers[stem]}"
        taken.add(name)
        return name

    def redirect(self, old: ir.Value, new: ir.Value) -> None:
        """Let every user of `old` read `new`; a graph output keeps its name."""
        self._analyses.forget(self._preserves)
        check_replacement(self.model, old, new)
        _inherit_typing(old, new)
        if not old.is_graph_output():
            old.replace_all_uses_with(new)
            return
        graph = old.graph
        assert isinstance(graph, ir.Graph)
        if new.producer() is None or new.is_graph_output() or new.graph is not graph:
            # An input, initializer, outer value or other output cannot take the output's name.
            new = self._identity(graph, old, new)
        old_name = old.name
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        # The declared type is the interface, whatever more is known of the new value.
        new.type, new.shape = old.type or new.type, old.shape or new.shape
        old.name = self.fresh_name(graph, f"{old_name}_replaced")
        new.name = old_name

    def _identity(self, graph: ir.Graph, old: ir.Value, new: ir.Value) -> ir.Value:
        producer = old.producer()
        assert producer is not None
        if (
            producer.op_type == "Identity"
            and producer.domain in ("", "ai.onnx")
            and producer.inputs[0] is new
        ):
            return old
        op = self.builder(producer)
        named = op.Identity(new)
        _inherit_typing(old, named)
        self.insert(producer, op.nodes)
        for user, index in tuple(old.uses()):
            user.replace_input_with(index, new)
        return named

    def move_behind(self, node: ir.Node, anchor: ir.Node) -> None:
        """Let the node run right behind another one of its graph."""
        graph = node.graph
        assert graph is not None
        graph.remove(node)
        graph.insert_after(anchor, node)

    def reorder(self, graph: ir.Graph, order: Sequence[ir.Node]) -> None:
        """Let the graph's nodes run in this order."""
        graph.remove(order)
        graph.extend(order)

    def remove(self, *nodes: ir.Node) -> None:
        """Remove those of the nodes that nothing uses, in the order given."""
        self._analyses.forget(self._preserves)
        for node in nodes:
            graph = node.graph
            if graph is None or any(v.uses() or v.is_graph_output() for v in node.outputs):
                continue
            _release_subgraphs(node)
            graph.remove(node, safe=True)
            if self.rewrites and node.name:
                self.rewrites[-1].removed.append(node.name)

    def _names(self, graph: ir.Graph) -> set[str]:
        """Names in use in all graphs seen so far: a name must not hide one of a graph around it."""
        if id(graph) not in self._seen_graphs:
            self._seen_graphs.add(id(graph))
            self._taken.update(v.name for v in graph.inputs if v.name)
            self._taken.update(getattr(graph, "initializers", ()))
            for node in ir.traversal.RecursiveGraphIterator(graph):
                self._taken.add(node.name or "")
                self._taken.update(v.name for v in node.outputs if v.name)
        return self._taken


def _release_subgraphs(node: ir.Node) -> None:
    """Let the nodes inside a node's subgraphs stop using values of the outside."""
    for attribute in node.attributes.values():
        if attribute.is_ref() or attribute.type != ir.AttributeType.GRAPH:
            continue
        for inner in ir.traversal.RecursiveGraphIterator(attribute.as_graph()):
            for index in range(len(inner.inputs)):
                inner.replace_input_with(index, None)


def _inherit_typing(old: ir.Value, new: ir.Value) -> None:
    if new.type is None:
        new.type = old.type
    if new.shape is None and old.shape is not None:
        new.shape = old.shape.copy() if hasattr(old.shape, "copy") else old.shape
