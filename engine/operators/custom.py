"""Declaring an operator of one's own, in a few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from fuseline.engine.errors import FuselineError
from fuseline.engine.operators.contracts import checked_reference, checked_rule
from fuseline.engine.operators.gradient import Defined, Gradient, GradientNode, NoGradient
from fuseline.engine.operators.operator import Operator, Trait
from fuseline.engine.type_names import data_type

if TYPE_CHECKING:
    from fuseline.engine.shapes.site import Site, Typing

__all__ = ["custom"]

_PARAMETER = onnx.defs.OpSchema.FormalParameter
_OPTION = onnx.defs.OpSchema.FormalParameterOption
_OPTIONS = {"?": _OPTION.Optional, "*": _OPTION.Variadic}


def custom(
    domain: str,
    name: str,
    inputs: str,
    outputs: str,
    *,
    attributes: Mapping[str, int | float | str] | None = None,
    types: Iterable[str] = ("float",),
    shape: str | Callable[[Site], Iterable[Typing]] | None = None,
    reference: Callable[..., Any] | None = None,
    library: str | Path | Callable[[], Path | None] | None = None,
    gradient: Iterable[GradientNode] = (),
    traits: Trait = Trait.NONE,
) -> Operator:
    """The record of an operator that ONNX does not have; `register` makes it known.

    `inputs` and `outputs` name the ports, comma-separated: `x` has one of the `types`, `i: int64` a type of
    its own, `bias?` may be left out, `rest*` are any number. `attributes` are their defaults. `shape` is the
    input that all outputs are like, or a rule that returns one (type, dims) per output. `reference` takes
    arrays, and attributes by name, and returns one array or a tuple. `library` holds the runtime's kernel.
    """
    if not domain or domain == "ai.onnx":
        raise FuselineError(f"the operator {name} needs a domain of its own", hint='for example "my.company"')
    schema = _schema(domain, name, (inputs, outputs), types, attributes or {})
    nodes = tuple(gradient)
    made: Gradient = Defined(nodes, _not_trained(schema)) if nodes else NoGradient()
    return Operator(
        name=name,
        domain=domain,
        traits=traits,
        declared=schema,
        gradient=made,
        shape=_like(schema, shape) if isinstance(shape, str) else checked_rule(schema, shape),
        evaluate=checked_reference(schema, reference) if reference is not None else None,
        library=_finder(library),
    )


def _schema(
    domain: str, name: str, ports: tuple[str, str], types: Iterable[str], attributes: Mapping[str, Any]
) -> onnx.defs.OpSchema:
    if not name.isidentifier():
        raise FuselineError(f"{name!r} is no name for an operator", hint='for example "SoftThreshold"')
    inputs, outputs = ([_port(text) for text in listed.split(",") if text.strip()] for listed in ports)
    if not outputs:
        raise FuselineError(f"the operator {domain}::{name} has no outputs", hint='name them: "y", "y, rest"')
    try:
        return onnx.defs.OpSchema(
            name,
            domain,
            1,
            inputs=inputs,
            outputs=outputs,
            type_constraints=[("T", [f"tensor({t})" for t in types], "")],
            attributes=[
                onnx.defs.OpSchema.Attribute(key, onnx.helper.make_attribute(key, default), key)
                for key, default in attributes.items()
            ],
        )
    except (RuntimeError, TypeError, ValueError) as error:  # what onnx raises of a declaration
        reason = str(error).strip().splitlines()[0]
        raise FuselineError(f"the operator {domain}::{name} is declared wrongly: {reason}") from error


def _port(text: str) -> onnx.defs.OpSchema.FormalParameter:
    name, _, kind = (part.strip() for part in text.partition(":"))
    option = _OPTIONS.get(name[-1:], _OPTION.Single)
    return _PARAMETER(name.rstrip("?*"), f"tensor({kind})" if kind else "T", param_option=option)


def _not_trained(schema: onnx.defs.OpSchema) -> frozenset[int]:
    floats = ("T", "tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)")
    return frozenset(i for i, port in enumerate(schema.inputs) if port.type_str not in floats)


def _like(schema: onnx.defs.OpSchema, wanted: str) -> Callable[[Site], list[Typing]]:
    names = [port.name for port in schema.inputs]
    if wanted not in names:
        raise FuselineError(
            f"{schema.domain}::{schema.name} is to have the shape of {wanted!r}, which is no input of it",
            hint=f"its inputs are {', '.join(names)}",
        )
    index = names.index(wanted)
    fixed = [data_type(port.type_str) for port in schema.outputs]

    def rule(site: Site) -> list[Typing]:
        return [(dtype or site.dtype(index), site.dims(index)) for dtype in fixed]

    return rule


def _finder(library: str | Path | Callable[[], Path | None] | None) -> Callable[[], Path | None] | None:
    if library is None or callable(library):
        return library
    path = Path(library)
    return lambda: path if path.is_file() else None
