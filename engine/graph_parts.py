"""Parts of a model to look at: the nodes of a torch module, and the neighbourhood of a node or value."""

from __future__ import annotations

import networkx as nx

from fuseline.engine.diff.snapshot import NodeInfo, Snapshot
from fuseline.engine.errors import ModelError, did_you_mean

__all__ = ["nodes_around", "nodes_of_module"]


def nodes_of_module(snapshot: Snapshot, module: str) -> list[NodeInfo]:
    """The nodes of one torch module and of those inside it, in all graphs."""
    nodes = _nodes(snapshot)
    chosen = [n for n in nodes if n.module is not None and _inside(n.module, module)]
    if not chosen:
        known = sorted({n.module for n in nodes if n.module})
        outermost = ", ".join(sorted({name.partition(".")[0] for name in known}))
        raise ModelError(
            f"no node comes from the module {module!r}",
            hint=did_you_mean(module, known)
            or (f"the outermost are {outermost}" if known else "it has none: torch did not export it"),
        )
    return chosen


def nodes_around(snapshot: Snapshot, name: str, hops: int) -> list[NodeInfo]:
    """The nodes at most so many edges away from a node or value, also into subgraphs and out of them.

    An edge leads from a node to one that reads it: two that read the same weight are no neighbours.
    """
    nodes = _nodes(snapshot)
    makers = {value: index for index, node in enumerate(nodes) for value in node.outputs if value}
    wiring: nx.Graph[int] = nx.Graph()
    for index, node in enumerate(nodes):
        wiring.add_edges_from((makers[value], index) for value in node.inputs if value in makers)
    starts = [i for i, n in enumerate(nodes) if n.name == name or name in n.outputs or name in n.inputs]
    if not name or not starts:
        raise ModelError(
            f"the model has no node or value {name!r}",
            hint=did_you_mean(name, [*(n.name for n in nodes), *(o for n in nodes for o in n.outputs)]),
        )
    wiring.add_nodes_from(starts)  # a node may have neither inputs nor outputs that are named
    distances = nx.multi_source_dijkstra_path_length(wiring, set(starts), cutoff=hops)
    return [node for i, node in enumerate(nodes) if i in distances]


def _nodes(snapshot: Snapshot) -> list[NodeInfo]:
    return [node for graph in snapshot.graphs() for node in graph.nodes]


def _inside(module: str, outer: str) -> bool:
    return module == outer or module.startswith(f"{outer}.")
