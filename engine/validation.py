"""What every graph must be before a pass touches it: defined values, no cycle, known operators."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from fuseline.engine.errors import ModelError, did_you_mean

if TYPE_CHECKING:
    from fuseline.engine.model import Model

__all__ = ["validate"]


def validate(model: Model, *, source: str = "the model") -> None:
    """Raise a ModelError on the first fault; nodes end up in topological order."""
    _check_operators(model, source)
    _check_values(model, source)
    _sort(model, source)


def _check_operators(model: Model, source: str) -> None:
    functions = {(f.domain, f.name) for f in model.ir.functions.values()}
    version = model.opset()
    for node in model.nodes():
        if node.domain not in ("", "ai.onnx") or (node.domain, node.op_type) in functions:
            continue
        if not onnx.defs.has(node.op_type):
            raise ModelError(
                f"{source}: node {node.name!r} has the unknown operator {node.op_type!r}",
                hint=did_you_mean(node.op_type, _standard_operators()) or "custom operators need a domain",
            )
        if version and version <= onnx.defs.onnx_opset_version() and not _known_at(node.op_type, version):
            raise ModelError(
                f"{source}: node {node.name!r}: operator {node.op_type!r} does not exist in opset {version}"
            )


@functools.cache
def _standard_operators() -> tuple[str, ...]:
    return tuple(sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}))


@functools.cache
def _known_at(op_type: str, version: int) -> bool:
    return onnx.defs.has(op_type, max_inclusive_version=version, domain="")


def _check_values(model: Model, source: str) -> None:
    for graph in model.graphs():
        inputs = set(graph.inputs)
        for node in graph:
            for value in node.inputs:
                if value is None or value.producer() is not None or value in inputs:
                    continue
                if value.is_initializer() or value.is_graph_input():
                    continue
                raise ModelError(f"{source}: node {node.name!r} reads {value.name!r}, which nothing produces")
    for output in model.graph.outputs:
        if output.producer() is None and not output.is_graph_input() and not output.is_initializer():
            raise ModelError(f"{source}: output {output.name!r} is produced by nothing")


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
        for value in node.inputs:
            producer = value.producer() if value is not None else None
            if producer is not None and producer.graph is graph and producer not in seen:
                return False
        seen.add(node)
    return True


def _cycle(graph: ir.Graph) -> str:
    import networkx as nx

    edges: nx.DiGraph[str | None] = nx.DiGraph()
    for node in graph:
        for value in node.inputs:
            producer = value.producer() if value is not None else None
            if producer is not None and producer.graph is graph:
                edges.add_edge(producer.name, node.name)
    names = [edge[0] for edge in nx.find_cycle(edges)]
    shown = names[:6] + (["…"] if len(names) > 6 else [])
    return " → ".join([*map(str, shown), str(names[0])])
