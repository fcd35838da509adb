"""Models, graphs and nodes as JSON; docs/diff-schema.md describes the members."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from fuseline.engine.diff.content import content_hash
from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo, Snapshot
from fuseline.engine.graph_text import attribute_text

__all__ = ["graph_dict", "model_dict", "node_dict", "tensor_dict"]

SCHEMA = "fuseline.model"
VERSION = 1


def model_dict(snapshot: Snapshot) -> dict[str, Any]:
    """A whole model, without the contents of its tensors."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "ir_version": snapshot.ir_version,
        "opsets": dict(snapshot.opsets),
        "parameters": dict(snapshot.parameters),
        "graph": graph_dict(snapshot.graph),
        "functions": [graph_dict(function) for function in snapshot.functions.values()],
    }


def graph_dict(graph: GraphInfo) -> dict[str, Any]:
    return {
        "path": graph.path,
        "inputs": dict(graph.inputs),
        "outputs": dict(graph.outputs),
        "initializers": [tensor_dict(n, t) for n, t in graph.initializers.items()],
        "nodes": [
            node_dict(n) | ({"graphs": {k: graph_dict(g) for k, g in n.graphs.items()}} if n.graphs else {})
            for n in graph.nodes
        ],
    }


def tensor_dict(name: str | None, tensor: ir.TensorProtocol | None) -> dict[str, Any]:
    if tensor is None:
        return {"name": name, "dtype": None, "shape": None, "hash": None}
    return {
        "name": name,
        "dtype": tensor.dtype.name.lower(),
        "shape": [d if isinstance(d, int) else str(d) for d in tensor.shape],
        "hash": content_hash(tensor),
    }


def node_dict(node: NodeInfo) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "types": list(node.types),
        "attributes": {k: attribute_text(v) for k, v in node.attributes.items()},
        "pass": node.made_by,
        "replaces": list(node.replaces),
        "module": node.module,
        "source": node.source,
    }
