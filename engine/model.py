"""The model that passes work on: an `onnx_ir` model, its parameter map and what is known about it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from fuseline.engine.collector import collector_paused
from fuseline.engine.errors import ModelError
from fuseline.engine.facts import Facts
from fuseline.engine.initializers import add_initializer, set_content
from fuseline.engine.parameter_steps import Reshape, Step, Transpose, check_inverse
from fuseline.engine.parameters import ParameterMap
from fuseline.engine.plurals import counted
from fuseline.engine.properties import Property
from fuseline.engine.returned import declare_returned
from fuseline.engine.shapes.placeholders import forget_placeholders
from fuseline.engine.sparse import make_dense

__all__ = ["Model"]

_PARAMETERS_KEY = "fuseline.parameters"
_FACTS_KEY = "fuseline.facts"


class Model:
    """An ONNX graph with its parameter map and facts (origin, interface, training, …).

    Facts and the parameter map travel in the file's metadata.
    """

    def __init__(
        self,
        ir_model: ir.Model,
        parameters: ParameterMap | None = None,
        facts: Facts | None = None,
    ) -> None:
        self.ir = ir_model
        self.parameters = parameters if parameters is not None else ParameterMap()
        self.facts = facts if facts is not None else Facts()

    # -- coming and going

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Read an .onnx file; weights in external files stay there until they are needed."""
        from fuseline.engine.files import load

        return load(path)

    @classmethod
    def from_proto(cls, proto: onnx.ModelProto) -> Model:
        with collector_paused():
            return cls.from_ir(ir.from_proto(declare_returned(make_dense(proto))))

    @classmethod
    def from_ir(cls, ir_model: ir.Model) -> Model:
        """Wrap an `onnx_ir` model, taking parameter map and facts out of its metadata."""
        metadata = ir_model.metadata_props
        parameters = metadata.pop(_PARAMETERS_KEY, None)
        facts = metadata.pop(_FACTS_KEY, None)
        model = cls(
            ir_model,
            ParameterMap.from_json(parameters) if parameters else None,
            Facts.from_json(_json(facts)) if facts else None,
        )
        model.name_everything()
        forget_placeholders(ir_model)
        return model

    @classmethod
    def from_text(cls, text: str) -> Model:
        """Parse standard ONNX text."""
        from fuseline.engine.validation import validate

        try:
            proto = onnx.parser.parse_model(text)
        except (onnx.parser.ParseError, TypeError) as error:
            found = error.args[0] if error.args else error
            shown = found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
            raise ModelError(f"this is not a model in ONNX text: {shown}") from error
        model = cls.from_proto(proto)
        validate(model)
        return model

    def to_ir(self) -> ir.Model:
        """The `onnx_ir` model with parameter map and facts written into its metadata (weights are shared)."""
        copy = self.ir.clone()
        if len(self.parameters):
            copy.metadata_props[_PARAMETERS_KEY] = self.parameters.to_json()
        facts = self.facts.to_json()
        if facts:
            copy.metadata_props[_FACTS_KEY] = json.dumps(facts, separators=(",", ":"))
        return copy

    def to_proto(self) -> onnx.ModelProto:
        from fuseline.engine.files import serialize

        with collector_paused():
            return serialize(self.to_ir())

    def save(self, path: str | os.PathLike[str], *, external: bool | None = None) -> None:
        """Write an .onnx file, atomically; `external=None` moves weights out of a file grown too large."""
        from fuseline.engine.files import save

        save(self, path, external=external)

    def clone(self) -> Model:
        """A copy whose graph can be changed independently; weights are shared, never copied."""
        with collector_paused():
            return Model(self.ir.clone(), self.parameters.copy(), self.facts.copy())

    # -- reading

    def __str__(self) -> str:
        from fuseline.engine.graph_text import graph_text

        return graph_text(self)

    def __repr__(self) -> str:
        count = sum(1 for _ in self.nodes())
        return (
            f"<Model {self.graph.name or 'without a name'}: {counted(count, 'node')}, opset {self.opset()}>"
        )

    def _repr_html_(self) -> str:
        from fuseline.engine.display import model_html

        return model_html(self)

    @property
    def graph(self) -> ir.Graph:
        return self.ir.graph

    def graphs(self) -> Iterator[ir.Graph]:
        """The main graph, function bodies, and every subgraph in them."""
        for root in (self.ir.graph, *(f.graph for f in self.ir.functions.values())):
            yield root
            yield from _nested(root)

    def nodes(self) -> Iterator[ir.Node]:
        """Every node of every graph."""
        for graph in self.graphs():
            yield from graph

    def opset(self, domain: str = "") -> int:
        """The opset version imported for a domain; 0 when the model does not import it."""
        imports = self.ir.graph.opset_imports
        return imports.get(domain, imports.get("ai.onnx", 0) if domain == "" else 0)

    @property
    def training(self) -> bool:
        """Whether the graph is meant to be trained (exported with a loss)."""
        return Property.TRAINING in self.facts.established

    def has(self, wanted: Property) -> bool:
        """Whether a property holds: an exporter or a pass established it, and none undid it since."""
        return wanted in self.facts.established

    def establish(self, *properties: Property) -> None:
        self.facts.established |= set(properties)

    def undo(self, *properties: Property) -> None:
        self.facts.established -= set(properties)

    def fingerprint(self) -> int:
        """Changes whenever a node, an edge, an attribute, a type, a weight or the interface changes.

        Valid within one process: weights are recognised by identity, so that large ones cost nothing.
        """
        from fuseline.engine.fingerprint import fingerprint

        return fingerprint(self)

    # -- what passes do to weights, together with the map

    def transform_parameter(self, value: ir.Value, step: Step) -> None:
        """Send an initializer through a step, which may be of one's own, and record it."""
        content = _content(value)
        made = np.asarray(step.apply(content))
        check_inverse(step, content, made)
        set_content(value, made)
        self.parameters.transform(_name(value), step)

    def transpose_parameter(self, value: ir.Value, perm: tuple[int, ...]) -> None:
        """Transpose an initializer in place and record it."""
        step = Transpose(perm)
        set_content(value, step.apply(_content(value)))
        self.parameters.transform(_name(value), step)

    def reshape_parameter(self, value: ir.Value, shape: tuple[int, ...]) -> None:
        """Reshape an initializer in place and record it."""
        content = _content(value)
        set_content(value, content.reshape(shape))
        self.parameters.transform(_name(value), Reshape(content.shape, shape))

    def pack_parameters(self, values: list[ir.Value], axis: int, name: str) -> ir.Value:
        """Concatenate initializers into a new one called `name`; the old ones leave the graph if unused."""
        contents = [_content(v) for v in values]
        packed = add_initializer(self.graph, name, np.concatenate(contents, axis=axis))
        self.parameters.pack(
            {_name(v): c.shape[axis] for v, c in zip(values, contents, strict=True)}, axis, name
        )
        return packed

    def name_everything(self) -> None:
        """Give every node and value a unique name, since diffs, provenance and reports refer to them."""
        from fuseline.engine.naming import name_everything

        name_everything(self.graphs())


def _nested(graph: ir.Graph) -> Iterator[ir.Graph]:
    # Every pass asks for all graphs, so this looks at attributes no closer than it must.
    for node in graph:
        for attribute in node._attributes.data.values():
            value = attribute._value
            if value.__class__ is ir.Graph:
                yield value
                yield from _nested(value)
            elif value.__class__ is tuple and value and value[0].__class__ is ir.Graph:
                for inner in value:
                    yield inner
                    yield from _nested(inner)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ModelError(f"the facts in the model's metadata are no JSON: {error}") from error


def _content(value: ir.Value) -> np.ndarray[Any, Any]:
    assert value.const_value is not None, f"{value.name} is not an initializer"
    return value.const_value.numpy()


def _name(value: ir.Value) -> str:
    assert value.name is not None
    return value.name
