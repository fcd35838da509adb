"""A diff as JSON, described in docs/diff-schema.md. VERSION grows with every change that is no addition."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fuseline.engine.diff.layout import Entry, hunks, layout
from fuseline.engine.diff.result import GraphDiff, InitializerChange, ModelDiff, NodeChange, TextChange
from fuseline.engine.graph_json import graph_dict, node_dict, tensor_dict
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
        "functions_added": [graph_dict(g) for g in diff.functions_added],
        "functions_removed": [graph_dict(g) for g in diff.functions_removed],
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
        "before": tensor_dict(change.before, change.old) if change.before is not None else None,
        "after": tensor_dict(change.after, change.new) if change.after is not None else None,
    }


def _entry(entry: Entry, diff: GraphDiff, context: int) -> dict[str, Any]:
    out: dict[str, Any] = {"change": entry.kind, "node": node_dict(entry.node)}
    if entry.kind in ("added", "removed") and entry.node.graphs:
        out["graphs"] = {k: graph_dict(g) for k, g in entry.node.graphs.items()}
    if entry.kind == "removed":
        out["replaced_by"] = list(diff.replaced_by.get(entry.node.name, ()))
    if entry.change is not None:
        out |= _change(entry.change, context)
    return out


def _change(change: NodeChange, context: int) -> dict[str, Any]:
    return {
        "before": node_dict(change.before),
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
