"""A snapshot as one flat list of nodes: subgraphs and functions become containers around their nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo, Snapshot
from fuseline.engine.training.gradients import LOSS_GRADIENT

__all__ = ["SEPARATOR", "FlatNode", "flatten", "graphs", "initializers", "interface"]

SEPARATOR = "\u001f"
"""Between the parts of a container's path; no exporter writes it into a name."""
BACKWARD = "backward"


@dataclass(frozen=True, slots=True, eq=False)
class FlatNode:
    """A node, the path of the graph it stands in, and the container it is shown in."""

    info: NodeInfo
    graph: str
    container: str


def flatten(snapshot: Snapshot) -> list[FlatNode]:
    """Every node of the model in the order of its graph, subgraphs right behind the node that holds them."""
    found = list(_nodes(snapshot.graph, ()))
    for name, graph in snapshot.functions.items():
        found.extend(_nodes(graph, (f"function {name}",)))
    return found


def initializers(snapshot: Snapshot) -> dict[str, ir.TensorProtocol | None]:
    """The weights and constants of all graphs by name; names are unique within a model's scopes."""
    found: dict[str, ir.TensorProtocol | None] = {}
    for graph in graphs(snapshot):
        found.update(graph.initializers)
    return found


def interface(snapshot: Snapshot) -> dict[str, Mapping[str, str]]:
    return {"inputs": snapshot.graph.inputs, "outputs": snapshot.graph.outputs}


def graphs(snapshot: Snapshot) -> Iterator[GraphInfo]:
    """All graphs of the model."""
    pending = [snapshot.graph, *snapshot.functions.values()]
    while pending:
        graph = pending.pop()
        yield graph
        pending.extend(inner for node in graph.nodes for inner in node.graphs.values())


def _nodes(graph: GraphInfo, outer: tuple[str, ...]) -> Iterator[FlatNode]:
    backward = _behind_loss(graph) if not outer else frozenset()
    for index, node in enumerate(graph.nodes):
        where = (*outer, *((BACKWARD,) if index in backward else ()), *_module(node))
        yield FlatNode(node, graph.path, SEPARATOR.join(where))
        for key, inner in node.graphs.items():
            yield from _nodes(inner, (*where, f"{node.name}.{key}"))


def _module(node: NodeInfo) -> list[str]:
    """The torch module; for other exporters the folders of a name such as `/encoder/layer.0/MatMul`."""
    if node.module:
        return node.module.split(".")
    return [part for part in node.name.split("/")[:-1] if part] if node.made_by is None else []


def _behind_loss(graph: GraphInfo) -> frozenset[int]:
    """The nodes that read the gradient of the loss, directly or not: the backward half of a training step."""
    reached = {name for name in graph.inputs if name == LOSS_GRADIENT}
    found = set()
    for index, node in enumerate(graph.nodes):
        if any(name in reached for name in node.inputs):
            found.add(index)
            reached.update(name for name in node.outputs if name)
    return frozenset(found)
