"""What every graph must be before a pass touches it: defined values, no cycle, known operators."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from fuseline.engine.errors import FuselineError, ModelError, did_you_mean
from fuseline.engine.nodes import is_standard, opset_at, read_by, root_of
from fuseline.engine.operators import lookup

if TYPE_CHECKING:
    from fuseline.engine.model import Model

__all__ = ["check_finished", "validate"]


def validate(model: Model, *, source: str = "the model") -> None:
    """Raise a ModelError on the first fault; nodes end up in topological order."""
    _check_operators(model, source)
    _check_values(model, source)
    _sort(model, source)


def check_finished(model: Model) -> None:
    """Raise a ModelError where a pass has left what no runtime loads; such a model is not written."""
    from fuseline.engine.rewriting.checks import check_node
    from fuseline.engine.rewriting.rewriter import PASS_KEY

    _check_values(model, "the model")
    for graph in model.graphs():
        if not _is_sorted(graph):
            raise ModelError(f"the nodes of {graph.name!r} are not in an order in which they can run")
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


def _check_operators(model: Model, source: str) -> None:
    functions = {(f.domain, f.name) for f in model.ir.functions.values()}
    for graph in model.graphs():
        version = opset_at(model, graph)
        for node in graph:
            if is_standard(node) and (node.domain, node.op_type) not in functions:
                _check_operator(node, version, source)


def _check_operator(node: ir.Node, version: int, source: str) -> None:
    if not onnx.defs.has(node.op_type):
        if lookup("", node.op_type) is not None:
            return  # ONNX Runtime keeps some operators of its own in the standard domain
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
    if onnx.defs.has(op_type, max_inclusive_version=version, domain=""):
        return True
    operator = lookup("", op_type)
    # The runtime has kernels of some in opsets where ONNX has none, and fusions use these.
    return operator is not None and operator.declared is not None


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
