"""What a model computes, as text without what may be chosen freely: two graphs are the same if it is equal.

opsets ai.onnx 20
input x: float[N,4]
%0 = MatMul(x, float[4,4] #5f0a…)	float[N,4]
%1 = com.microsoft.Gelu(%0)	float[N,4]
output y: float[N,4] = %1

Free are the names of nodes and of values inside the graph, the order of independent nodes, documentation
and metadata. What is known about types inside the graph stands behind a tab: it may be more or less exact
while the graph stays the same (`without_details`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count

from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo, Snapshot
from fuseline.engine.graph_text import attributes_text, tensor_text
from fuseline.engine.model import Model

__all__ = ["canonical_text", "local_lines", "with_plain_constants", "without_details"]

_MADE = re.compile(r"^(\s*)(%\d+(?:, (?:%\d+|_))*|_(?:, (?:%\d+|_))*) = ([^(]+)\(")
_VALUE = re.compile(r"%\d+")
_CONSTANT = re.compile(r"^\s*(%\d+) = Constant\(\) \{value=(.*?)\}(?:\t.*)?$")


def canonical_text(model: Model) -> str:
    """The text of a whole model: main graph with its subgraphs, functions, and where the parameters are."""
    snapshot = Snapshot.of(model)
    opsets = ", ".join(f"{domain} {version}" for domain, version in sorted(snapshot.opsets.items()))
    lines = [f"opsets {opsets}", *_Writer(_labels(model)).lines(snapshot.graph)]
    for name in sorted(snapshot.functions):
        function = snapshot.functions[name]
        lines += ["", f"function {name}", *_Writer({}).lines(function)]
    unused = sorted(p.name for p in model.parameters if not p.value)
    return "\n".join([*lines, *(f"parameter {name} is not in the graph" for name in unused)]) + "\n"


def without_details(text: str) -> str:
    """The text without the types of values inside the graph."""
    return "\n".join(line.split("\t")[0] for line in text.splitlines())


def with_plain_constants(text: str) -> str:
    """The text with every constant written where it is used, be it a node or an initializer."""
    shown: dict[str, str] = {}
    numbers = count()
    lines = []

    def renamed(found: re.Match[str]) -> str:
        if found[0] not in shown:
            shown[found[0]] = f"%{next(numbers)}"
        return shown[found[0]]

    for line in text.splitlines():
        constant = _CONSTANT.match(line)
        if constant is not None:
            shown[constant[1]] = constant[2]
        else:
            lines.append(_VALUE.sub(renamed, line))
    return "\n".join(lines) + "\n"


def local_lines(text: str) -> list[str]:
    """The lines with operators in place of numbers: an inserted node changes its neighbours' lines alone."""
    makers: dict[str, str] = {}
    lines = []
    for line in text.splitlines():
        made = _MADE.match(line)
        if made is not None:
            makers.update(dict.fromkeys(_VALUE.findall(made[2]), f"‹{made[3]}›"))
            line = made[1] + line[made.end(2) + len(" = ") :]
        lines.append(_VALUE.sub(lambda found: makers.get(found[0], found[0]), line))
    return lines


def _labels(model: Model) -> dict[str, str]:
    """Value → the original parameters that live in it: equal contents do not make two weights one."""
    found: dict[str, list[str]] = {}
    for parameter in model.parameters:
        if parameter.value:
            found.setdefault(parameter.value, []).append(parameter.name)
    return {value: "+".join(sorted(names)) + " " for value, names in found.items()}


class _Writer:
    """Numbers the values of a graph and its subgraphs in the order in which the outputs need them."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._numbers = count()

    def lines(self, graph: GraphInfo, outer: Mapping[str, str] | None = None) -> Iterator[str]:
        names = dict(outer or {})
        for name, tensor in graph.initializers.items():
            names[name] = self._labels.get(name, "") + tensor_text(tensor)
        for name, kind in graph.inputs.items():
            default = f" = {names[name]}" if name in graph.initializers else ""
            # A subgraph's inputs are known by their place, a model's by their name.
            names[name] = name if outer is None else f"%{next(self._numbers)}"
            yield f"input {names[name]}: {kind}{default}"
        for node in _ordered(graph):
            yield from self._node(node, names)
        for name, kind in graph.outputs.items():
            shown = f"output {name}" if outer is None else "output"
            yield f"{shown}: {kind} = {names.get(name, name)}"

    def _node(self, node: NodeInfo, names: dict[str, str]) -> Iterator[str]:
        inputs = ", ".join(names.get(name, name) if name else "_" for name in node.inputs)
        bodies = [
            f"    {line}"
            for key in sorted(node.graphs)
            for line in (f"{key}:", *self.lines(node.graphs[key], names))
        ]
        for name in node.outputs:
            if name:
                names[name] = f"%{next(self._numbers)}"
        outputs = ", ".join(names[name] if name else "_" for name in node.outputs)
        types = ", ".join(t for t, name in zip(node.types, node.outputs, strict=True) if name)
        yield f"{outputs} = {node.op}({inputs}){attributes_text(node.attributes)}\t{types}"
        yield from bodies


def _ordered(graph: GraphInfo) -> list[NodeInfo]:
    """The nodes, each behind what it needs, as the outputs ask for them; unused ones at the end."""
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    ordered: dict[int, NodeInfo] = {}
    roots = [makers[name] for name in graph.outputs if name in makers]
    for root in (*roots, *graph.nodes):
        waiting = [(root, False)]
        while waiting:
            node, ready = waiting.pop()
            if id(node) in ordered:
                continue
            if ready:
                ordered[id(node)] = node
                continue
            waiting.append((node, True))
            waiting += [(makers[name], False) for name in reversed(_needs(node)) if name in makers]
    return list(ordered.values())


def _needs(node: NodeInfo) -> list[str]:
    """The values that a node reads, those that its subgraphs capture included."""
    needed = [name for name in node.inputs if name]
    for key in sorted(node.graphs):
        inner = node.graphs[key]
        own = {*inner.inputs, *inner.initializers, *(name for n in inner.nodes for name in n.outputs)}
        wanted = [name for n in _ordered(inner) for name in _needs(n)] + list(inner.outputs)
        needed += [name for name in wanted if name not in own]
    return needed
