"""How a graph is written into a golden file, and what of it is compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import onnx
import onnx.printer

from fuseline.engine.canonical import canonical_text, without_details
from fuseline.engine.model import Model

__all__ = ["comparable", "printed"]


def comparable(proto: onnx.ModelProto, *, types: bool) -> str:
    """What a graph computes, whatever its nodes and inner values are called."""
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    del plain.metadata_props[:]  # the parameter map, which an expectation does not have
    # An expectation is written without a header: the opsets are not part of it.
    text = canonical_text(Model.from_proto(plain)).partition("\n")[2]
    return text if types else without_details(text)


def printed(proto: onnx.ModelProto, *, types: bool) -> str:
    """The ONNX text of a model as it stands in a golden file: no node names, documentation or metadata."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.metadata_props[:]
    for graph in _graphs(copy.graph):
        _strip_graph(graph, types=types)
    for function in copy.functions:
        function.ClearField("value_info")
        del function.metadata_props[:]
        _strip_nodes(function.node, types=types)
    text = onnx.printer.to_text(copy)
    text = re.sub(r"^<.*?>\n", "", text, count=1, flags=re.S)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _strip_graph(graph: onnx.GraphProto, *, types: bool) -> None:
    known = {tensor.name for tensor in graph.initializer}
    infos = [i for i in graph.value_info if types and i.name not in known]
    infos.sort(key=lambda i: i.name)
    graph.ClearField("value_info")
    for info in infos:
        plain = graph.value_info.add()
        plain.name = info.name
        plain.type.CopyFrom(info.type)
    for value in (*graph.input, *graph.output):
        del value.metadata_props[:]
    initializers = sorted(graph.initializer, key=lambda t: t.name)
    graph.ClearField("initializer")
    graph.initializer.extend(initializers)
    del graph.metadata_props[:]
    _strip_nodes(graph.node, types=types)


def _strip_nodes(nodes: Any, *, types: bool) -> None:
    for node in nodes:
        node.ClearField("name")
        node.ClearField("doc_string")
        del node.metadata_props[:]
        attributes = sorted(node.attribute, key=lambda a: a.name)
        node.ClearField("attribute")
        node.attribute.extend(attributes)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.ClearField("name")
            if attribute.HasField("g"):
                _strip_graph(attribute.g, types=types)
