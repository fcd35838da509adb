"""Whether the nodes of a model that comes in fit the operators they name.

A runtime refuses a model in which one does not, whatever passes make of the rest. What runtimes take
though the standard does not, such as a domain that is used and not imported, is put right.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from fuseline.engine.errors import ModelError, did_you_mean
from fuseline.engine.nodes import function_graphs, is_standard, opset_at, root_of
from fuseline.engine.operators import lookup
from fuseline.engine.operators.signatures import Signature, fault, form_fault, is_deprecated, signature

if TYPE_CHECKING:
    from fuseline.engine.model import Model

__all__ = ["check_nodes", "check_versions", "import_domains"]


def check_versions(model: Model, source: str) -> None:
    """Refuse what was written by rules that nobody here knows."""
    newest = onnx.defs.onnx_opset_version()
    if model.ir.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{source} is of IR version {model.ir.ir_version}, the newest that is known is {onnx.IR_VERSION}",
            hint="export it again for an older version",
        )
    for graph in (model.graph, *(f.graph for f in model.ir.functions.values())):
        version = opset_at(model, graph)
        if version > newest:
            raise ModelError(
                f"{source} is of opset {version}, the newest that is known is {newest}",
                hint="export it again for an older opset",
            )


def import_domains(model: Model) -> None:
    """Let each graph import the domains that it uses: runtimes take them for granted at their newest."""
    for graph in model.graphs():
        root = root_of(model, graph)
        for node in graph:
            if not is_standard(node) and node.domain not in root.opset_imports:
                root.opset_imports[node.domain] = _newest(node.domain)


@functools.cache
def _newest(domain: str) -> int:
    return max((s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain), default=1)


def check_nodes(model: Model, source: str) -> None:
    """Refuse unknown operators and attributes, wrong arities and element types; the nodes are in order."""
    inside_functions = function_graphs(model)
    known: dict[ir.Value, ir.DataType] = {}
    for graph in model.graphs():
        versions = {opset_at(model, graph)}
        if graph in inside_functions:
            versions.add(model.opset())  # in which a runtime reads it, in the place of a call
        for node in graph:
            for version in versions:
                wrong = _fault(model, node, version, known)
                if wrong is not None:
                    raise ModelError(f"{source}: node {node.name!r}{wrong[0]}", hint=wrong[1])
    for function in model.ir.functions.values():
        _check_recursion(model, function, source)


Fault = tuple[str, str | None]
_RUNTIMES_OWN = "com.microsoft"


def _fault(model: Model, node: ir.Node, version: int, known: dict[ir.Value, ir.DataType]) -> Fault | None:
    function = model.ir.functions.get(node.op_identifier())
    if function is not None:
        return _call_fault(node, function)
    if not is_standard(node):
        return _declared_fault(node, known)
    found = _standard(node, version)
    if not isinstance(found, Signature):
        return found
    # Of a Constant runtimes make an initializer, of any type, before they look at what an old opset allows.
    wrong = form_fault(node, found) if node.op_type == "Constant" else fault(node, found, known)
    return None if wrong is None else (f": {node.op_type} of opset {version} {wrong}", None)


def _declared_fault(node: ir.Node, known: dict[ir.Value, ir.DataType]) -> Fault | None:
    """What is wrong with a node of an operator that somebody here has declared.

    What other domains hold depends on the runtime and its libraries.
    """
    operator = lookup(node.domain, node.op_type)
    found = signature(node.domain, node.op_type, 1) if operator is not None and operator.declared else None
    if found is None or node.domain == _RUNTIMES_OWN:
        return None
    wrong = fault(node, found, known)
    return None if wrong is None else (f": {node.domain}::{node.op_type} {wrong}", None)


def _standard(node: ir.Node, version: int) -> Signature | Fault | None:
    """How the operator is declared in an opset, what is wrong with asking for it, or None: not known."""
    op_type = node.op_type
    if not version:
        return f" is {op_type} of ONNX's own operators, of which no version is imported", None
    found = signature("", op_type, version)
    if found is not None:
        return found
    if not onnx.defs.has(op_type) and lookup("", op_type) is None:
        hint = did_you_mean(op_type, _standard_operators()) or "custom operators need a domain"
        return f" has the unknown operator {op_type!r}", hint
    if is_deprecated("", op_type, version):
        return f": operator {op_type!r} is no longer there in opset {version}", None
    if onnx.defs.has(op_type) and not onnx.defs.has(op_type, max_inclusive_version=version, domain=""):
        return f": operator {op_type!r} does not exist in opset {version}", None
    return None


def _call_fault(node: ir.Node, function: ir.Function) -> Fault | None:
    for what, given, taken in (
        ("inputs", node.inputs, function.inputs),
        ("outputs", node.outputs, function.outputs),
    ):
        if len(given) > len(taken):
            return f" has {len(given)} {what}, but the function {function.name!r} {len(taken)}", None
    return None


@functools.cache
def _standard_operators() -> tuple[str, ...]:
    return tuple(sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}))


def _check_recursion(model: Model, function: ir.Function, source: str) -> None:
    pending, seen = [function], set()
    while pending:
        caller = pending.pop()
        for node in ir.traversal.RecursiveGraphIterator(caller.graph):
            called = model.ir.functions.get(node.op_identifier())
            if called is function:
                raise ModelError(f"{source}: the function {function.name!r} calls itself")
            if called is not None and called.identifier() not in seen:
                seen.add(called.identifier())
                pending.append(called)
