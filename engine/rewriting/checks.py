"""What every node that a pass adds, and every value it puts in another's place, is held to."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.errors import PassError, did_you_mean
from fuseline.engine.model import Model
from fuseline.engine.nodes import STANDARD_DOMAINS, has_references, opset_at, root_of
from fuseline.engine.operators import Operator, record
from fuseline.engine.operators.signatures import Signature, fault, is_known, known_domains, signature, similar
from fuseline.engine.rewriting.forms import Inexpressible
from fuseline.engine.shapes.dims import Dims, dims_of
from fuseline.engine.shapes.element_types import element_type
from fuseline.engine.shapes.inference import infer
from fuseline.engine.shapes.site import Typing
from fuseline.engine.shapes.values import ShapeValues

# Without arithmetic on the CPU: such a model is made for another device.
_ELSEWHERE = (ir.DataType.BFLOAT16, ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2)
_COMMON = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)

__all__ = ["check_node", "check_replacement", "import_domain"]


def import_domain(model: Model, graph: ir.Graph, domain: str) -> None:
    """Let the model, and the function that the graph belongs to, import the domain of a new node."""
    if domain in STANDARD_DOMAINS:
        return
    for root in (model.graph, root_of(model, graph)):
        root.opset_imports.setdefault(domain, 1)


def check_node(model: Model, node: ir.Node, graph: ir.Graph) -> None:
    """Refuse a node that no runtime would load: unknown operator, wrong arity, attribute or element type."""
    if (node.domain, node.op_type, node.overload) in model.ir.functions:
        return
    version = opset_at(model, graph, "" if node.domain in STANDARD_DOMAINS else node.domain)
    found = signature(node.domain, node.op_type, version or 1)
    name = f"{node.domain}::{node.op_type}" if node.domain not in STANDARD_DOMAINS else node.op_type
    if found is None:
        if not is_known(node.domain, node.op_type):
            raise PassError(
                f"there is no operator {name!r}",
                hint=similar(node.domain, node.op_type) or "an operator of your own needs a domain",
            )
        if node.domain in STANDARD_DOMAINS:
            raise Inexpressible(f"opset {version} has no {name}")
        _check_domain(model, node, graph)
        return
    wrong = fault(node, found)
    if wrong is not None:
        kind = Inexpressible if wrong.startswith("takes no ") else PassError
        raise kind(f"{name} {wrong}")
    if node.domain not in STANDARD_DOMAINS and node.attributes.get_float("epsilon", 0.0) < 0:
        raise Inexpressible(f"{name} takes no negative epsilon")
    operator = record(node)
    if operator is not None:
        _check_type(model, node, found, operator, version)


def _check_domain(model: Model, node: ir.Node, graph: ir.Graph) -> None:
    """Refuse an operator of a domain that neither the model nor anybody here has heard of."""
    imported = {*model.graph.opset_imports, *root_of(model, graph).opset_imports}
    domains = known_domains()
    if node.domain not in imported and node.domain not in domains:
        raise PassError(
            f"nothing is known of the domain {node.domain!r} of {node.op_type}",
            hint=did_you_mean(node.domain, domains)
            or f"declare the operator: register(custom({node.domain!r}, {node.op_type!r}, …))",
        )


def _check_type(model: Model, node: ir.Node, found: Signature, operator: Operator, version: int) -> None:
    value = _computed_in(node, found)
    dtype = element_type(model, value)
    if value is None or dtype in _ELSEWHERE:
        return
    if dtype is None and not all(operator.supports(d, opset=version) for d in _COMMON):
        raise Inexpressible(f"the element type of {value.name!r} is not known: infer-shapes finds it")
    if dtype is not None and not operator.supports(dtype, opset=version):
        raise Inexpressible(f"ONNX Runtime has no {operator.qualified} for {dtype.name}")


def _computed_in(node: ir.Node, found: Signature) -> ir.Value | None:
    """The value whose element type decides about the kernel: the first input which has a choice."""
    for index, value in enumerate(node.inputs):
        port = found.input(index)
        if port is not None and (port.dtypes is None or len(port.dtypes) > 1):
            return value
    return None


def check_replacement(model: Model, old: ir.Value, new: ir.Value) -> None:
    """Refuse to put a value in place of another of a different element type or shape."""
    dtype, meant = _made_by(model, old)
    dtype = old.dtype or dtype
    if dtype is not None and new.dtype is not None and dtype != new.dtype:
        raise PassError(
            f"{old.name!r} is {dtype.name}, but what takes its place, {new.name!r}, is {new.dtype.name}"
        )
    made, declared = dims_of(new), dims_of(old)
    if made is None:
        return
    if meant is None and declared is not None:
        meant = (None,) * len(declared)  # sizes in a file may be those of an example
    if meant is None:
        return
    if len(meant) != len(made) or any(_differ(a, b) for a, b in zip(meant, made, strict=True)):
        raise PassError(
            f"{old.name!r} has the shape {_shown(meant)}, but what takes its place, {new.name!r}, "
            f"has the shape {_shown(made)}"
        )


def _made_by(model: Model, value: ir.Value) -> Typing:
    """Type and shape as they follow from the producer: what a file declares is a claim, not a fact."""
    node, index = value.producer(), value.index()
    if node is None or index is None or has_references(node):
        return None, None
    found = infer(node, ShapeValues(model)) or ()
    return found[index] if index < len(found) else (None, None)


def _differ(one: int | str | None, other: int | str | None) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one != other


def _shown(dims: Dims) -> str:
    return f"[{','.join('?' if d is None else str(d) for d in dims)}]"
