"""What a diff says: plain data, in the order of the graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import onnx_ir as ir

from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo

__all__ = [
    "AttributeChange",
    "GraphDiff",
    "InitializerChange",
    "InputChange",
    "ModelDiff",
    "NodeChange",
    "TextChange",
]


@dataclass(frozen=True)
class TextChange:
    """Something by name whose text differs; None on one side where it is absent."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class InputChange:
    """A node's input that now reads another value."""

    index: int
    before: str
    after: str


@dataclass(frozen=True)
class AttributeChange:
    """An attribute with another value; `present` says on which sides it exists."""

    name: str
    before: Any
    after: Any
    present: Literal["both", "before", "after"]


@dataclass(frozen=True)
class InitializerChange:
    """An initializer that came, went, changed, or goes by another name (`before` and `after` are names)."""

    kind: Literal["added", "removed", "renamed", "changed"]
    before: str | None
    after: str | None
    old: ir.TensorProtocol | None
    new: ir.TensorProtocol | None


@dataclass(frozen=True)
class NodeChange:
    """A node that exists on both sides and is not the same."""

    before: NodeInfo
    after: NodeInfo
    renamed: bool
    inputs: tuple[InputChange, ...]
    attributes: tuple[AttributeChange, ...]
    types: tuple[TextChange, ...]
    graphs: tuple[GraphDiff, ...]

    @property
    def rewired(self) -> bool:
        return bool(self.inputs)


@dataclass(frozen=True)
class GraphDiff:
    """Two versions of one graph. `pairs` maps the index of a kept node before to its index after."""

    path: str
    before: GraphInfo
    after: GraphInfo
    pairs: dict[int, int]
    added: tuple[NodeInfo, ...]
    removed: tuple[NodeInfo, ...]
    changed: tuple[NodeChange, ...]
    inputs: tuple[TextChange, ...]
    outputs: tuple[TextChange, ...]
    initializers: tuple[InitializerChange, ...]
    replaced_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Removed node → the added nodes that say they replace it."""

    def __bool__(self) -> bool:
        return any((self.added, self.removed, self.changed, self.inputs, self.outputs, self.initializers))

    def walk(self) -> Iterator[GraphDiff]:
        """This diff and those of all subgraphs in kept nodes."""
        yield self
        for change in self.changed:
            for inner in change.graphs:
                yield from inner.walk()


@dataclass(frozen=True, repr=False)
class ModelDiff:
    """Two versions of a model; false if they are equal."""

    graph: GraphDiff
    functions: tuple[GraphDiff, ...]
    functions_added: tuple[GraphInfo, ...]
    functions_removed: tuple[GraphInfo, ...]
    opsets: tuple[TextChange, ...]
    ir_version: TextChange | None
    parameters: tuple[TextChange, ...]

    def __bool__(self) -> bool:
        parts = (self.graph, self.functions_added, self.functions_removed, self.opsets, self.parameters)
        return any(parts) or any(self.functions) or self.ir_version is not None

    def __str__(self) -> str:
        from fuseline.engine.diff.text import to_text

        return to_text(self)

    def __repr__(self) -> str:
        from fuseline.engine.diff.text import summary

        return f"<ModelDiff: {summary(self)}>"

    def _repr_html_(self) -> str:
        from fuseline.engine.display import diff_html

        return diff_html(self)

    def graphs(self) -> Iterator[GraphDiff]:
        """Every graph on both sides: the main one, subgraphs, functions."""
        yield from self.graph.walk()
        for function in self.functions:
            yield from function.walk()

    def counts(self) -> dict[str, int]:
        """How many of each kind of change, in all graphs."""
        graphs = list(self.graphs())
        changed = [c for g in graphs for c in g.changed]
        return {
            "added": sum(len(g.added) for g in graphs),
            "removed": sum(len(g.removed) for g in graphs),
            "rewired": sum(c.rewired for c in changed),
            "renamed": sum(c.renamed for c in changed),
            "attributes": sum(bool(c.attributes) for c in changed),
            "types": sum(bool(c.types) for c in changed),
            "initializers": sum(len(g.initializers) for g in graphs),
            "interface": sum(len(g.inputs) + len(g.outputs) for g in graphs),
            "functions": len(self.functions_added) + len(self.functions_removed),
            "opsets": len(self.opsets) + (self.ir_version is not None),
            "parameters": len(self.parameters),
        }
