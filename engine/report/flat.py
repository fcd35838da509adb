"""A snapshot as one flat list of nodes: subgraphs and functions become containers around their nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

import onnx_ir as ir

from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo, Snapshot
from fuseline.engine.training.gradients import LOSS_GRADIENT

__all__ = ["SEPARATOR", "FlatNode", "Folders", "enclosing", "flatten", "holder", "initializers", "interface"]

SEPARATOR = "\u001f"
"""Between the parts of a container's path; no exporter writes it into a name."""
BACKWARD = "backward"
_INSIDE = " / "
"""Between the path of a graph and the attribute that holds another one."""


@dataclass(frozen=True, slots=True, eq=False)
class FlatNode:
    """A node, the path of the graph it stands in, and the container it is shown in."""

    info: NodeInfo
    graph: str
    container: str


Folders = dict[str, list[str]]
"""The name of a node → the folders it was shown in."""


def flatten(snapshot: Snapshot, folders: Folders | None = None) -> list[FlatNode]:
    """Every node of the model in the order of its graph, subgraphs right behind the node that holds them.

    `folders` is kept from point to point: what a pass makes is shown where the nodes were that it replaces.
    """
    known: Folders = {} if folders is None else folders
    found = list(_nodes(snapshot.graph, (), known))
    for name, graph in snapshot.functions.items():
        found.extend(_nodes(graph, (f"function {name}",), known))
    return found


def initializers(snapshot: Snapshot) -> dict[str, ir.TensorProtocol | None]:
    """The weights and constants of all graphs. Two branches may use one name for different things, so that
    one inside another graph is called by its path too."""
    found: dict[str, ir.TensorProtocol | None] = {}
    for graph in snapshot.graphs():
        outer = "" if graph.path == snapshot.graph.path else f"{graph.path}{SEPARATOR}"
        found.update({f"{outer}{name}": tensor for name, tensor in graph.initializers.items()})
    return found


def enclosing(path: str) -> Iterator[str]:
    """A graph and those around it, from the inside: where a name of it may come from."""
    while path:
        yield path
        path = path.rpartition(_INSIDE)[0]


def holder(path: str) -> tuple[str, str]:
    """The graph and the name of the node that a graph is an attribute of; '' for an outermost one."""
    outer, _, attribute = path.rpartition(_INSIDE)
    return outer, attribute.rpartition(".")[0]


def interface(snapshot: Snapshot) -> dict[str, Mapping[str, str]]:
    return {"inputs": snapshot.graph.inputs, "outputs": snapshot.graph.outputs}


def _nodes(graph: GraphInfo, outer: tuple[str, ...], folders: Folders) -> Iterator[FlatNode]:
    backward = _behind_loss(graph) if not outer else frozenset()
    for index, node in enumerate(graph.nodes):
        where = (*outer, *((BACKWARD,) if index in backward else ()), *_module(node, folders))
        yield FlatNode(node, graph.path, SEPARATOR.join(where))
        for key, inner in node.graphs.items():
            yield from _nodes(inner, (*where, f"{node.name}.{key}"), folders)


def _module(node: NodeInfo, folders: Folders) -> list[str]:
    """The torch module; for other exporters the folders of a name such as `/encoder/layer.0/MatMul`."""
    if node.module:
        return node.module.split(".")
    if node.name not in folders:
        folders[node.name] = _folders(node, folders)
    return folders[node.name]


def _folders(node: NodeInfo, folders: Folders) -> list[str]:
    if node.made_by is None:
        return [part for part in node.name.split("/")[:-1] if part]
    # The name begins with the pass; what counts is where the replaced nodes were, as far as they agree.
    shown = [folders[name] for name in node.replaces if name in folders]
    return [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*shown, strict=False))]


def _behind_loss(graph: GraphInfo) -> frozenset[int]:
    """The nodes that read the gradient of the loss, directly or not: the backward half of a training step."""
    reached = {name for name in graph.inputs if name == LOSS_GRADIENT}
    found = set()
    for index, node in enumerate(graph.nodes):
        if any(name in reached for name in node.inputs):
            found.add(index)
            reached.update(name for name in node.outputs if name)
    return frozenset(found)
