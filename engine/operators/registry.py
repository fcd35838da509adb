"""All operators that are known, by domain and name."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from fuseline.engine.authoring import called_from
from fuseline.engine.errors import FuselineError
from fuseline.engine.operators.operator import Operator, Trait

__all__ = ["forget", "libraries", "lookup", "record", "records", "register"]

_records: dict[tuple[str, str], Operator] = {}
_places: dict[tuple[str, str], str] = {}


def register(*operators: Operator) -> None:
    """Make operators known to every pass, to verification and to every session made from now on."""
    place = called_from() or "fuseline"
    for operator in operators:
        if not isinstance(operator, Operator):
            raise FuselineError(
                f"a {type(operator).__name__} is registered, which is no operator",
                hint="register(custom(…), custom(…))",
            )
        key = (operator.domain, operator.name)
        if key in _records:
            raise FuselineError(
                f"the operator {operator.qualified} is registered twice: in {_places[key]}, and in {place}",
                hint="give one of them a domain of its own",
            )
        _records[key], _places[key] = operator, place


def forget(*operators: Operator) -> None:
    """Take back registrations, as a plugin that is unloaded must."""
    for operator in operators:
        key = (operator.domain, operator.name)
        if _records.get(key) is operator:
            del _records[key], _places[key]


def lookup(domain: str, op_type: str) -> Operator | None:
    """The record of an operator; None if nothing at all is known of it."""
    found = _records.get((domain, op_type))
    if found is None and domain == "ai.onnx":
        found = _records.get(("", op_type))
    return found if found is not None else _plain(domain, op_type)


def record(node: ir.Node) -> Operator | None:
    """The record of a node's operator."""
    return lookup(node.domain, node.op_type)


def records() -> Iterator[Operator]:
    """Every registered operator."""
    yield from _records.values()


def libraries() -> list[Path]:
    """The libraries with kernels of registered operators, those that were built."""
    finders = dict.fromkeys(o.library for o in _records.values() if o.library is not None)
    return list(dict.fromkeys(path for path in (find() for find in finders) if path is not None))


@functools.cache
def _plain(domain: str, op_type: str) -> Operator | None:
    """A standard operator of which nothing is written down computes its outputs from its inputs."""
    if domain not in ("", "ai.onnx") or not onnx.defs.has(op_type):
        return None
    schema = onnx.defs.get_schema(op_type)
    graphs = any(a.type == onnx.defs.OpSchema.AttrType.GRAPH for a in schema.attributes.values())
    return Operator(name=op_type, traits=Trait.STATEFUL if graphs else Trait.NONE)
