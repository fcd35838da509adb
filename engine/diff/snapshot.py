"""A snapshot: everything a diff needs to know of a model, independent of later changes, without weights.

Names, operators, attributes and types are copied; tensors are referred to and never read here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from fuseline.engine.collector import collector_paused
from fuseline.engine.model import Model
from fuseline.engine.rewriting.rewriter import MODULE_KEY, PASS_KEY, REPLACES_KEY, SOURCE_KEY

__all__ = ["GraphInfo", "NodeInfo", "Reference", "Snapshot", "operator"]

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a function's node that takes the value of the function's attribute `name`."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class NodeInfo:
    """One node. An absent optional input or output is an empty name."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[str, ...]
    attributes: Mapping[str, Any]
    graphs: Mapping[str, GraphInfo]
    made_by: str | None
    replaces: tuple[str, ...]
    module: str | None
    source: str | None


@dataclass(frozen=True, slots=True, eq=False)
class GraphInfo:
    """One graph or function body. `initializers` maps a name to its tensor (None if it has no content)."""

    path: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    initializers: Mapping[str, ir.TensorProtocol | None]
    nodes: tuple[NodeInfo, ...]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model at one moment."""

    graph: GraphInfo
    functions: Mapping[str, GraphInfo]
    opsets: Mapping[str, int]
    ir_version: int
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Original parameter name → the graph value it lives in, with the steps that lead there."""

    @classmethod
    def of(cls, model: Model) -> Snapshot:
        with collector_paused():
            return cls._of(model)

    @classmethod
    def _of(cls, model: Model) -> Snapshot:
        types = _TypeTexts()
        functions = {
            f"{f.domain}.{f.name}": _graph(f.graph, f"function {f.domain}.{f.name}", types)
            for f in model.ir.functions.values()
        }
        return cls(
            graph=_graph(model.graph, "main", types),
            functions=functions,
            opsets={d or "ai.onnx": v for d, v in model.graph.opset_imports.items()},
            ir_version=model.ir.ir_version,
            parameters={p.name: _parameter(p) for p in model.parameters},
        )

    def graphs(self) -> Iterator[GraphInfo]:
        """The main graph, function bodies, and every subgraph in them."""
        for root in (self.graph, *self.functions.values()):
            yield from _nested(root)


def _nested(graph: GraphInfo) -> Iterator[GraphInfo]:
    yield graph
    for node in graph.nodes:
        for inner in node.graphs.values():
            yield from _nested(inner)


def operator(domain: str, op_type: str) -> str:
    """`Add`, or with a domain of its own `com.microsoft.Gelu`."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}.{op_type}"


class _TypeTexts:
    """The text of value types; graphs repeat few of them, so they are remembered."""

    def __init__(self) -> None:
        self._known: dict[Any, str] = {}

    def __call__(self, value: ir.Value) -> str:
        shape = value.shape
        dims = None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)
        key = (value.type, dims)
        if key not in self._known:
            self._known[key] = _type_text(value.type, dims)
        return self._known[key]


def _type_text(type_: ir.TypeProtocol | None, dims: tuple[int | str | None, ...] | None) -> str:
    """`float[N,4]`; `[]` is a scalar, `[*]` an unknown rank, `?` an unknown size."""
    if type_ is None:
        return "?"
    inside = "*" if dims is None else ",".join("?" if d is None else str(d) for d in dims)
    if isinstance(type_, (ir.SequenceType, ir.OptionalType)):
        word = "sequence" if isinstance(type_, ir.SequenceType) else "optional"
        return f"{word}({_type_text(type_.elem_type, dims)})"  # type: ignore[arg-type]
    return f"{type_.dtype.name.lower()}[{inside}]"


def _graph(graph: ir.Graph, path: str, types: Callable[[ir.Value], str]) -> GraphInfo:
    return GraphInfo(
        path=path,
        inputs={v.name or "": types(v) for v in graph.inputs},
        outputs={v.name or "": types(v) for v in graph.outputs},
        initializers={n: v.const_value for n, v in graph.initializers.items()},
        nodes=tuple(_node(n, path, types) for n in graph),
    )


def _node(node: ir.Node, path: str, types: Callable[[ir.Value], str]) -> NodeInfo:
    attributes: dict[str, Any] = {}
    graphs: dict[str, GraphInfo] = {}
    name = node.name or ""
    for key, attribute in node.attributes.items():
        if attribute.is_ref():
            attributes[key] = Reference(attribute.ref_attr_name or "")
        elif attribute.type not in _GRAPHS:
            value = attribute.value
            attributes[key] = tuple(value) if isinstance(value, list) else value
        elif attribute.type == ir.AttributeType.GRAPH:
            graphs[key] = _graph(attribute.as_graph(), f"{path} / {name}.{key}", types)
        else:
            for index, inner in enumerate(attribute.as_graphs()):
                graphs[f"{key}[{index}]"] = _graph(inner, f"{path} / {name}.{key}[{index}]", types)
    metadata = node.metadata_props
    return NodeInfo(
        name=name,
        op=operator(node.domain, node.op_type),
        inputs=tuple(v.name or "" if v is not None else "" for v in node.inputs),
        outputs=tuple(v.name or "" for v in node.outputs),
        types=tuple(types(v) for v in node.outputs),
        attributes=attributes,
        graphs=graphs,
        made_by=metadata.get(PASS_KEY),
        replaces=_names(metadata.get(REPLACES_KEY)),
        module=metadata.get(MODULE_KEY),
        source=metadata.get(SOURCE_KEY),
    )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text else ()


def _parameter(parameter: Any) -> str:
    steps = "".join(f" · {step}" for step in parameter.steps)
    trained = "trainable" if parameter.trainable else "frozen"
    return f"{parameter.value or 'unused'}{steps} ({trained})"
