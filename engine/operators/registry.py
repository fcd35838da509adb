"""All operators that are known, by domain and name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from fuseline.engine.errors import FuselineError
from fuseline.engine.operators.operator import Operator, Trait

__all__ = ["forget", "libraries", "lookup", "record", "records", "register"]

_records: dict[tuple[str, str], Operator] = {}


def register(*operators: Operator) -> None:
    """Make operators known to every pass, to verification and to every session made from now on."""
    for operator in operators:
        key = (operator.domain, operator.name)
        if key in _records:
            raise FuselineError(
                f"the operator {operator.qualified} is registered twice: {_origin(_records[key])}, and "
                f"{_origin(operator)}",
                hint="give one of them a domain of its own",
            )
        _records[key] = operator


def forget(operator: Operator) -> None:
    """Take back a registration, as a plugin that is unloaded must."""
    if _records.get((operator.domain, operator.name)) is operator:
        del _records[operator.domain, operator.name]


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
    finders: Iterable[Callable[[], Path | None]] = dict.fromkeys(
        o.library for o in _records.values() if o.library is not None
    )
    return [path for path in (find() for find in finders) if path is not None]


@functools.cache
def _plain(domain: str, op_type: str) -> Operator | None:
    """A standard operator of which nothing is written down computes its outputs from its inputs."""
    if domain not in ("", "ai.onnx") or not onnx.defs.has(op_type):
        return None
    schema = onnx.defs.get_schema(op_type)
    graphs = any(a.type == onnx.defs.OpSchema.AttrType.GRAPH for a in schema.attributes.values())
    return Operator(name=op_type, traits=Trait.STATEFUL if graphs else Trait.NONE)


def _origin(operator: Operator) -> str:
    built = operator.library() if operator.library is not None else None
    return f"one with the library {built}" if built is not None else "one without a library"
