"""Unique names for every node and value."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

__all__ = ["fresh_name", "name_everything"]


def name_everything(graphs: Iterable[ir.Graph]) -> None:
    """Name what has no name; rename nodes that share one. Names of values are kept: they are references."""
    taken_nodes: set[str] = set()
    taken_values: set[str] = set()
    graphs = list(graphs)
    for graph in graphs:
        taken_values.update(v.name for v in (*graph.inputs, *graph.initializers.values()) if v.name)
        for node in graph:
            taken_values.update(v.name for v in node.outputs if v.name)
    counter = 0
    for graph in graphs:
        for node in graph:
            if not node.name or node.name in taken_nodes:
                node.name = fresh_name(node.name or f"{node.op_type}_{counter}", taken_nodes.__contains__)
            taken_nodes.add(node.name)
            counter += 1
            for index, value in enumerate(node.outputs):
                # An unnamed output that nobody uses is an absent optional output.
                if not value.name and (value.uses() or value.is_graph_output()):
                    suffix = f"_{index}" if len(node.outputs) > 1 else ""
                    value.name = fresh_name(f"{node.name}{suffix}", taken_values.__contains__)
                    taken_values.add(value.name)


def fresh_name(stem: str, taken: Callable[[str], bool]) -> str:
    """`stem`, or `stem_1`, `stem_2`, … whichever is free."""
    if not taken(stem):
        return stem
    counter = 1
    while taken(f"{stem}_{counter}"):
        counter += 1
    return f"{stem}_{counter}"
