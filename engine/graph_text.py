"""Graphs as readable, canonical text: one line a node, in the order of the graph.

graph main (x: float[N,4]) -> (y: float[N,4])
  w = float[4,4] #5f0a…
  h = MatMul(x, w) : float[N,4]
  y = com.microsoft.Gelu(h) : float[N,4]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from fuseline.engine.diff.content import content_hash, is_tensor
from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo, Reference, Snapshot
from fuseline.engine.model import Model

__all__ = [
    "attribute_text",
    "attributes_text",
    "graph_text",
    "node_text",
    "nodes_text",
    "operand_text",
    "printable",
    "scalars",
    "tensor_text",
    "type_suffix",
]

_SHOWN_ELEMENTS = 8


def graph_text(model: Model | Snapshot) -> str:
    """The whole model: opsets, main graph with its subgraphs, functions."""
    snapshot = _snapshot(model)
    opsets = ", ".join(f"{domain} {version}" for domain, version in sorted(snapshot.opsets.items()))
    lines = [f"opsets {opsets}", *_graph_lines(snapshot.graph, "graph")]
    for name in sorted(snapshot.functions):
        lines.extend(["", *_graph_lines(snapshot.functions[name], "")])
    return "\n".join(map(printable, lines)) + "\n"


def nodes_text(snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> str:
    """Some nodes of a model, one line each."""
    numbers = scalars(*snapshot.graphs())
    return "".join(f"{printable(node_text(node, numbers))}\n" for node in nodes)


def printable(line: str) -> str:
    """One line in any terminal: what no font draws, the end of a line among it, is written out."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _snapshot(model: Model | Snapshot) -> Snapshot:
    return model if isinstance(model, Snapshot) else Snapshot.of(model)


def _graph_lines(graph: GraphInfo, word: str) -> Iterator[str]:
    label = f"{word} {graph.path}".strip()
    yield f"{label} ({_signature(graph.inputs)}) -> ({_signature(graph.outputs)})"
    for name in sorted(graph.initializers):
        yield f"  {name} = {tensor_text(graph.initializers[name])}"
    numbers = scalars(graph)
    for node in graph.nodes:
        yield f"  {node_text(node, numbers)}"
        for key, inner in node.graphs.items():
            yield f"    {key}:"
            yield from (f"      {line}" for line in _graph_lines(inner, ""))


def _signature(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {type_}" for name, type_ in values.items())


def scalars(*graphs: GraphInfo) -> dict[str, str]:
    """The constants of one element in these graphs, by name, as text."""
    found = {n: t for graph in graphs for n, t in graph.initializers.items() if t is not None}
    for node in (n for graph in graphs for n in graph.nodes if n.op == "Constant" and n.attributes):
        found[node.outputs[0]] = next(iter(node.attributes.values()))
    return {name: text for name, held in found.items() if (text := _scalar_text(held)) is not None}


def _scalar_text(held: Any) -> str | None:
    if isinstance(held, (int, float)):
        return attribute_text(held)
    if not is_tensor(held) or held.size != 1 or held.dtype == ir.DataType.STRING:
        return None
    element = np.asarray(held.numpy()).reshape(-1).tolist()[0]
    return attribute_text(float(element) if isinstance(element, float) else element)


def operand_text(name: str, numbers: Mapping[str, str]) -> str:
    """The name of what is read; a constant of one element with its value."""
    return f"{name}={numbers[name]}" if name in numbers else name or "_"


def node_text(node: NodeInfo, numbers: Mapping[str, str]) -> str:
    """`y = Clip(x, low=0) : float[N,4]`"""
    outputs = ", ".join(name or "_" for name in node.outputs)
    inputs = ", ".join(operand_text(name, numbers) for name in node.inputs)
    types = [t for t, name in zip(node.types, node.outputs, strict=True) if name]
    return f"{outputs} = {node.op}({inputs}){attributes_text(node.attributes)}{type_suffix(types)}"


def type_suffix(types: Sequence[str]) -> str:
    """` : float[N,4]`; nothing at all where no type is known."""
    return f" : {', '.join(types)}" if any(t != "?" for t in types) else ""


def attributes_text(attributes: Mapping[str, Any]) -> str:
    """` {axis=1, epsilon=1e-05}`, sorted; nothing at all where there are none."""
    if not attributes:
        return ""
    return " {" + ", ".join(f"{k}={attribute_text(attributes[k])}" for k in sorted(attributes)) + "}"


def attribute_text(value: Any) -> str:
    if isinstance(value, Reference):
        return f"@{value.name}"
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, (str, bytes)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(attribute_text(v) for v in value)}]"
    if is_tensor(value):
        return tensor_text(value)
    return str(value)


def tensor_text(tensor: ir.TensorProtocol | None) -> str:
    """Type and shape, with the elements of a small tensor or the content hash of a large one."""
    if tensor is None:
        return "(no content)"
    head = f"{tensor.dtype.name.lower()}[{','.join(str(d) for d in tensor.shape)}]"
    if tensor.size > _SHOWN_ELEMENTS:
        return f"{head} #{content_hash(tensor)}"
    elements = np.asarray(tensor.numpy()).reshape(-1).tolist()
    shown = [attribute_text(float(e) if isinstance(e, float) else e) for e in elements]
    return f"{head} {{{', '.join(shown)}}}"
