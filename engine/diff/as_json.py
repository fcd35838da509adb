"""A diff as JSON, described in docs/diff-schema.md. VERSION grows with every change that is no addition."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from fuseline.engine.diff.content import content_hash
from fuseline.engine.diff.layout import Entry, hunks, layout
from fuseline.engine.diff.result import GraphDiff, InitializerChange, ModelDiff, NodeChange, TextChange
from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo
from fuseline.engine.graph_text import attribute_text

__all__ = ["SCHEMA", "VERSION", "to_dict", "to_json"]

SCHEMA = "fuseline.diff"
VERSION = 1
_INDENTED_CHANGES = 2000


def to_json(diff: ModelDiff, extra: Mapping[str, Any] | None = None, *, context: int = 3) -> str:
    """The document as text; `extra` adds top-level members such as the pass."""
    document = to_dict(diff, context=context) | dict(extra or {})
    # Indenting is for people, and costs ten times as much.
    indent = 1 if sum(diff.counts().values()) < _INDENTED_CHANGES else None
    return json.dumps(document, indent=indent, ensure_ascii=False) + "\n"


def to_dict(diff: ModelDiff, *, context: int = 3) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "equal": not diff,
        "counts": diff.counts(),
        "ir_version": _text(diff.ir_version) if diff.ir_version else None,
        "opsets": [_text(c) for c in diff.opsets],
        "parameters": [_text(c) for c in diff.parameters],
        "graphs": [_graph(g, context) for g in (diff.graph, *diff.functions) if g],
        "functions_added": [_whole(g) for g in diff.functions_added],
        "functions_removed": [_whole(g) for g in diff.functions_removed],
    }


def _text(change: TextChange) -> dict[str, Any]:
    return {"name": change.name, "before": change.before, "after": change.after}


def _graph(diff: GraphDiff, context: int) -> dict[str, Any]:
    return {
        "path": diff.path,
        "nodes_before": len(diff.before.nodes),
        "nodes_after": len(diff.after.nodes),
        "inputs": [_text(c) for c in diff.inputs],
        "outputs": [_text(c) for c in diff.outputs],
        "initializers": [_initializer(c) for c in diff.initializers],
        "hunks": [
            {"start": start, "entries": [_entry(e, diff, context) for e in hunk]}
            for start, hunk in hunks(layout(diff), context)
        ],
    }


def _initializer(change: InitializerChange) -> dict[str, Any]:
    return {
        "change": change.kind,
        "before": _tensor(change.before, change.old) if change.before is not None else None,
        "after": _tensor(change.after, change.new) if change.after is not None else None,
    }


def _tensor(name: str | None, tensor: ir.TensorProtocol | None) -> dict[str, Any]:
    if tensor is None:
        return {"name": name, "dtype": None, "shape": None, "hash": None}
    return {
        "name": name,
        "dtype": tensor.dtype.name.lower(),
        "shape": [d if isinstance(d, int) else str(d) for d in tensor.shape],
        "hash": content_hash(tensor),
    }


def _entry(entry: Entry, diff: GraphDiff, context: int) -> dict[str, Any]:
    out: dict[str, Any] = {"change": entry.kind, "node": _node(entry.node)}
    if entry.kind in ("added", "removed") and entry.node.graphs:
        out["graphs"] = {k: _whole(g) for k, g in entry.node.graphs.items()}
    if entry.kind == "removed":
        out["replaced_by"] = list(diff.replaced_by.get(entry.node.name, ()))
    if entry.change is not None:
        out |= _change(entry.change, context)
    return out


def _change(change: NodeChange, context: int) -> dict[str, Any]:
    return {
        "before": _node(change.before),
        "renamed": change.renamed,
        "inputs": [{"index": c.index, "before": c.before, "after": c.after} for c in change.inputs],
        "attributes": [
            {
                "name": c.name,
                "before": None if c.present == "after" else attribute_text(c.before),
                "after": None if c.present == "before" else attribute_text(c.after),
            }
            for c in change.attributes
        ],
        "types": [_text(c) for c in change.types],
        "graphs": [_graph(g, context) for g in change.graphs],
    }


def _node(node: NodeInfo) -> dict[str, Any]:
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
    }


def _whole(graph: GraphInfo) -> dict[str, Any]:
    return {
        "path": graph.path,
        "inputs": dict(graph.inputs),
        "outputs": dict(graph.outputs),
        "initializers": [_tensor(n, t) for n, t in graph.initializers.items()],
        "nodes": [
            _node(n) | ({"graphs": {k: _whole(g) for k, g in n.graphs.items()}} if n.graphs else {})
            for n in graph.nodes
        ],
    }
