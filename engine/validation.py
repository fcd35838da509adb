"""What every graph must be before a pass touches it, and before it is written: what a runtime can load."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import onnx_ir as ir

from fuseline.engine.arrival import check_nodes, check_versions, import_domains
from fuseline.engine.errors import FuselineError, ModelError
from fuseline.engine.nodes import is_standard, read_by, root_of

if TYPE_CHECKING:
    from fuseline.engine.model import Model

__all__ = ["check_finished", "check_wiring", "validate"]


def validate(model: Model, *, source: str = "the model") -> None:
    """Raise a ModelError on the first fault; nodes end up in topological order."""
    check_versions(model, source)
    import_domains(model)
    _check_values(model, source)
    _sort(model, source)
    check_nodes(model, source)


def check_finished(model: Model) -> None:
    """Raise a ModelError where a pass has left what no runtime loads; such a model is not written."""
    from fuseline.engine.rewriting.checks import check_node
    from fuseline.engine.rewriting.rewriter import PASS_KEY

    check_wiring(model)
    for graph in model.graphs():
        imports = root_of(model, graph).opset_imports
        for node in graph:
            maker = node.metadata_props.get(PASS_KEY)
            if maker is None:
                continue
            if not is_standard(node) and node.domain not in imports:
                raise ModelError(
                    f"{node.name!r}, made by {maker!r}, is of the domain {node.domain!r}, "
                    f"which {graph.name!r} does not import"
                )
            try:
                check_node(model, node, graph)
            except FuselineError as error:
                raise ModelError(
                    f"{node.name!r}, made by {maker!r}: {error.message}", hint=error.hint
                ) from error
    check_nodes(model, "the model")


def check_wiring(model: Model) -> None:
    """Raise a ModelError where a node reads what nothing gives it, or what is made only behind it."""
    _check_values(model, "the model")
    for graph in model.graphs():
        if not _is_sorted(graph):
            raise ModelError(f"the nodes of {graph.name!r} are not in an order in which they can run")


def _check_values(model: Model, source: str) -> None:
    for graph in model.graphs():
        inputs = set(graph.inputs)
        for node in graph:
            for value in node.inputs:
                if value is None or _is_made(value) or value in inputs:
                    continue
                if value.is_initializer() or value.is_graph_input():
                    continue
                raise ModelError(f"{source}: node {node.name!r} reads {value.name!r}, which nothing produces")
        if len({value.name for value in graph.inputs}) < len(graph.inputs):
            twice = Counter(value.name for value in graph.inputs).most_common(1)[0][0]
            raise ModelError(f"{source}: the graph {graph.name!r} has two inputs {twice!r}")
        for output in graph.outputs:
            if not _is_made(output) and output not in inputs and not output.is_initializer():
                raise ModelError(
                    f"{source}: output {output.name!r} of {graph.name!r} is produced by nothing",
                    hint="an Identity returns what is made outside" if graph is not model.graph else None,
                )


def _is_made(value: ir.Value) -> bool:
    """Whether a node makes it that still stands in a graph."""
    maker = value.producer()
    return maker is not None and maker.graph is not None


def _sort(model: Model, source: str) -> None:
    for graph in model.graphs():
        if _is_sorted(graph):
            continue
        try:
            graph.sort()
        except ValueError as error:
            raise ModelError(f"{source}: the graph {graph.name!r} has a cycle: {_cycle(graph)}") from error


def _is_sorted(graph: ir.Graph) -> bool:
    seen: set[ir.Node] = set()
    for node in graph:
        for value in read_by(node):
            producer = value.producer()
            if producer is not None and producer.graph is graph and producer not in seen:
                return False
        seen.add(node)
    return True


def _cycle(graph: ir.Graph) -> str:
    import networkx as nx

    edges: nx.DiGraph[str | None] = nx.DiGraph()
    for node in graph:
        for value in read_by(node):
            producer = value.producer()
            if producer is not None and producer.graph is graph:
                edges.add_edge(producer.name, node.name)
    names = [edge[0] for edge in nx.find_cycle(edges)]
    shown = names[:6] + (["…"] if len(names) > 6 else [])
    return " → ".join([*map(str, shown), str(names[0])])
