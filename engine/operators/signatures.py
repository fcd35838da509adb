"""Signatures: what an operator may be given, as the schemas of its record have it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir

from fuseline.engine.errors import did_you_mean
from fuseline.engine.nodes import normal_domain
from fuseline.engine.operators.registry import lookup, records
from fuseline.engine.plurals import counted
from fuseline.engine.type_names import data_type

__all__ = [
    "Port",
    "Signature",
    "attribute_names",
    "fault",
    "form_fault",
    "holds_graphs",
    "is_deprecated",
    "is_known",
    "known_domains",
    "largest_arities",
    "signature",
    "similar",
]

_OPTION = onnx.defs.OpSchema.FormalParameterOption


@dataclass(frozen=True)
class Port:
    """An input or output: its type by name ("T", or a type itself) and the element types that may be."""

    name: str
    type: str
    dtypes: frozenset[ir.DataType] | None
    optional: bool
    variadic: bool
    alike: bool
    """Whether all values of a variadic port have one type."""


@dataclass(frozen=True)
class Signature:
    """One version of an operator."""

    op_type: str
    since: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arity: tuple[int, int]
    results: tuple[int, int]
    required: tuple[str, ...]
    defaults: Mapping[str, Any]
    """Attribute → what it is when absent (None: nothing)."""
    kinds: Mapping[str, int]

    def input(self, index: int) -> Port | None:
        """The port of the input at a position."""
        if index < len(self.inputs):
            return self.inputs[index]
        return self.inputs[-1] if self.inputs and self.inputs[-1].variadic else None

    def output(self, index: int) -> Port | None:
        if index < len(self.outputs):
            return self.outputs[index]
        return self.outputs[-1] if self.outputs and self.outputs[-1].variadic else None


def signature(domain: str, op_type: str, version: int) -> Signature | None:
    """The operator as it is in a version of its domain (0: the newest); None if it does not exist there."""
    operator = lookup(domain, op_type)
    newest = onnx.defs.onnx_opset_version()
    schema = operator.schema(min(version, newest) or newest) if operator is not None else None
    return None if schema is None or _is_withdrawn(schema) else _read(schema)


def is_deprecated(domain: str, op_type: str, version: int) -> bool:
    """Whether a version of the domain has taken the operator out again."""
    operator = lookup(domain, op_type)
    schema = operator.schema(version) if operator is not None else None
    return schema is not None and _is_withdrawn(schema)


def _is_withdrawn(schema: onnx.defs.OpSchema) -> bool:
    """Whether runtimes refuse it. GroupNormalization of opset 18 they run, as the function it is made of."""
    is_function = schema.has_function or schema.has_context_dependent_function  # type: ignore[attr-defined]
    return bool(schema.deprecated) and not is_function


def holds_graphs(domain: str, op_type: str) -> bool:
    """Whether an attribute of the operator is a graph, which it runs."""
    found = signature(domain, op_type, 0)
    return found is not None and int(ir.AttributeType.GRAPH) in found.kinds.values()


def is_known(domain: str, op_type: str) -> bool:
    """Whether the operator exists in any version; in a domain that nothing is known of, each does."""
    domain = normal_domain(domain)
    if lookup(domain, op_type) is not None or (domain, op_type) in _history():
        return True
    return domain not in known_domains() or (domain != "" and similar(domain, op_type) is None)


def similar(domain: str, op_type: str) -> str | None:
    """A hint naming operators that are written nearly so."""
    known = {name for d, name in (*_history(), *_recorded()) if d == normal_domain(domain)}
    return did_you_mean(op_type, known)


def attribute_names(domain: str, op_type: str) -> frozenset[str] | None:
    """The attributes the operator has in any version; None if nothing is known of it."""
    schemas = _versions(domain, op_type)
    return frozenset(name for s in schemas for name in s.attributes) if schemas else None


def largest_arities(domain: str, op_type: str) -> tuple[int, int] | None:
    """The most inputs and outputs the operator has in any version; None if nothing is known of it."""
    schemas = _versions(domain, op_type)
    if not schemas:
        return None
    return max(s.max_input for s in schemas), max(s.max_output for s in schemas)


@functools.cache
def _history() -> dict[tuple[str, str], list[onnx.defs.OpSchema]]:
    found: dict[tuple[str, str], list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return found


def _versions(domain: str, op_type: str) -> list[onnx.defs.OpSchema]:
    operator = lookup(domain, op_type)
    declared = [operator.declared] if operator is not None and operator.declared is not None else []
    return [*_history().get((normal_domain(domain), op_type), ()), *declared]


def _recorded() -> Iterator[tuple[str, str]]:
    return ((operator.domain, operator.name) for operator in records())


def known_domains() -> set[str]:
    """The domains of which some operator is known."""
    return {domain for domain, _ in (*_history(), *_recorded())}


@functools.lru_cache(maxsize=4096)
def _read(schema: onnx.defs.OpSchema) -> Signature:
    attributes = schema.attributes
    return Signature(
        schema.name,
        schema.since_version,
        tuple(_port(p) for p in schema.inputs),
        tuple(_port(p) for p in schema.outputs),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        tuple(name for name, a in attributes.items() if a.required),
        {name: _default(a) for name, a in attributes.items()},
        {name: int(a.default_value.type) or _KIND_OF[str(a.type)] for name, a in attributes.items()},
    )


_KIND_OF = {f"AttrType.{kind.name}": int(kind) for kind in ir.AttributeType}


def _port(parameter: onnx.defs.OpSchema.FormalParameter) -> Port:
    return Port(
        parameter.name,
        parameter.type_str,
        _dtypes(frozenset(parameter.types)),
        parameter.option == _OPTION.Optional,
        parameter.option == _OPTION.Variadic,
        parameter.is_homogeneous,
    )


@functools.cache
def _dtypes(types: frozenset[str]) -> frozenset[ir.DataType] | None:
    """The element types; None where something else than a tensor may be given."""
    if not types or not all(t.startswith("tensor(") for t in types):
        return None
    return frozenset(dtype for t in types if (dtype := data_type(t)) is not None)


def _default(attribute: onnx.defs.OpSchema.Attribute) -> Any:
    if attribute.default_value.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


# -- what is wrong with a node


def fault(node: ir.Node, found: Signature, known: dict[ir.Value, ir.DataType] | None = None) -> str | None:
    """What about the node does not fit the signature, in words; None if it fits.

    `known` holds the element types of values that do not declare one; those of the outputs are added to it.
    """
    return form_fault(node, found) or _type_fault(node, found, {} if known is None else known)


def form_fault(node: ir.Node, found: Signature) -> str | None:
    """The same, whatever the element types are."""
    return _arity_fault(node, found) or _attribute_fault(node, found)


def _arity_fault(node: ir.Node, found: Signature) -> str | None:
    given = len(node.inputs)
    low, high = found.arity
    if not low <= given <= high:
        wanted = f"{low}" if low == high else f"{low} to {high}" if high < 1000 else f"at least {low}"
        return f"has {counted(given, 'input')}, but takes {wanted}"
    for index in range(low):
        port = found.input(index)
        if node.inputs[index] is None and port is not None and not port.optional:
            return f"lacks its input {port.name!r}"
    if len(node.outputs) > found.results[1]:
        return f"has {counted(len(node.outputs), 'output')}, but makes at most {found.results[1]}"
    return None


def _attribute_fault(node: ir.Node, found: Signature) -> str | None:
    for name, attribute in node.attributes.items():
        kind = found.kinds.get(name)
        if kind is None and name.startswith("__"):
            continue  # a note of somebody's own, which runtimes pass over
        if kind is None:
            hint = did_you_mean(name, found.kinds)
            known = ", ".join(sorted(found.kinds)) or "none"
            return f"has no attribute {name!r}" + (f": {hint}" if hint else f" (it knows {known})")
        if not attribute.is_ref() and int(attribute.type) != kind:
            return f"has {name!r} as {attribute.type.name}, not as {ir.AttributeType(kind).name}"
    missing = next((name for name in found.required if name not in node.attributes), None)
    return f"lacks its attribute {missing!r}" if missing is not None else None


def _type_fault(node: ir.Node, found: Signature, known: dict[ir.Value, ir.DataType]) -> str | None:
    bound: dict[str, tuple[str, ir.DataType]] = {}
    for port, value in (*_pairs(node.inputs, found.input), *_pairs(node.outputs, found.output)):
        if port is None or value is None or (port.variadic and not port.alike):
            continue
        dtype = _declared(value) or known.get(value)
        if dtype is None:
            if value.type is None and port.type in bound and value.producer() is node:
                known[value] = bound[port.type][1]
            continue
        if port.dtypes is not None and dtype not in port.dtypes:
            return f"takes no {dtype.name} as {port.name!r}"
        other = bound.setdefault(port.type, (port.name, dtype))
        if other[1] != dtype:
            return f"mixes {other[1].name} ({other[0]!r}) and {dtype.name} ({port.name!r})"
    return None


def _declared(value: ir.Value) -> ir.DataType | None:
    if value.type.__class__ is not ir.TensorType:
        return None
    dtype: ir.DataType = value.type.dtype  # type: ignore[union-attr]
    return None if dtype == ir.DataType.UNDEFINED else dtype


def _pairs(values: Sequence[ir.Value | None], port: Any) -> list[tuple[Port | None, ir.Value | None]]:
    return [(port(index), value) for index, value in enumerate(values)]
