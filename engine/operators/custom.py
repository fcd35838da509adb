"""Declaring an operator of one's own, in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from fuseline.engine.authoring import raised_at
from fuseline.engine.errors import FuselineError
from fuseline.engine.operators import schemas
from fuseline.engine.operators.contracts import checked_gradient, checked_reference, checked_rule
from fuseline.engine.operators.gradient import Defined, Gradient, GradientNode, NoGradient
from fuseline.engine.operators.operator import Library, Operator, Trait
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
    library: str | Path | Callable[[], str | Path | None] | None = None,
    gradient: Iterable[GradientNode] = (),
    traits: Trait = Trait.NONE,
) -> Operator:
    """The record of an operator that ONNX does not have; `register` makes it known.

    `inputs` and `outputs` name the ports, comma-separated: `x` has one of the `types`, `i: int64` a type of
    its own, `bias?` may be left out, `rest*` are any number. `attributes` are their defaults. `shape` is the
    input that all outputs are like, or a rule that returns one (type, dims) per output. `reference` takes
    arrays, and attributes by name, and returns one array or a tuple. `library` holds the runtime's kernel.
    """
    texts = {"domain": domain, "name": name, "inputs": inputs, "outputs": outputs}
    for what, given in texts.items():
        if not isinstance(given, str):
            raise FuselineError(f"the {what} of an operator is a text, not {given!r}")
    if not isinstance(traits, Trait):
        raise FuselineError(
            f"the traits of {domain}::{name} are {traits!r}",
            hint="for example Trait.ELEMENTWISE | Trait.RANDOM",
        )
    if not domain or domain == "ai.onnx" or schemas.find(domain, name, onnx.defs.onnx_opset_version()):
        raise FuselineError(f"the operator {name} needs a domain of its own", hint='for example "my.company"')
    schema = _schema(domain, name, (inputs, outputs), types, attributes or {})
    nodes = checked_gradient(schema, gradient)
    made: Gradient = Defined(nodes, _not_trained(schema)) if nodes else NoGradient()
    return Operator(
        name=name,
        domain=domain,
        traits=traits,
        declared=schema,
        gradient=made,
        shape=_like(schema, shape) if isinstance(shape, str) else checked_rule(schema, shape),
        evaluate=checked_reference(schema, reference) if reference is not None else None,
        library=_finder(f"{domain}::{name}", library),
    )


def _schema(
    domain: str, name: str, ports: tuple[str, str], types: Iterable[str], attributes: Mapping[str, Any]
) -> onnx.defs.OpSchema:
    if not name.isidentifier():
        raise FuselineError(f"{name!r} is no name for an operator", hint='for example "SoftThreshold"')
    inputs, outputs = (_ports(f"{domain}::{name}", listed) for listed in ports)
    if not outputs:
        raise FuselineError(f"the operator {domain}::{name} has no outputs", hint='name them: "y", "y, rest"')
    allowed = [f"tensor({t})" for t in types]
    if not allowed:
        raise FuselineError(f"the operator {domain}::{name} takes no types at all", hint='types=("float",)')
    odd = [key for key in attributes if not isinstance(key, str) or not key.isidentifier()]
    if odd:
        raise FuselineError(f"{odd[0]!r} is no name for an attribute of {domain}::{name}")
    try:
        return onnx.defs.OpSchema(
            name,
            domain,
            1,
            inputs=inputs,
            outputs=outputs,
            type_constraints=[("T", allowed, "")],
            attributes=[
                onnx.defs.OpSchema.Attribute(key, onnx.helper.make_attribute(key, default), key)
                for key, default in attributes.items()
            ],
        )
    except (RuntimeError, TypeError, ValueError) as error:  # what onnx raises of a declaration
        reason = str(error).strip().splitlines()[0]
        raise FuselineError(f"the operator {domain}::{name} is declared wrongly: {reason}") from error


def _ports(label: str, listed: str) -> list[onnx.defs.OpSchema.FormalParameter]:
    ports = [_port(label, text) for text in listed.split(",")] if listed.strip() else []
    twice = [name for name, count in Counter(port.name for port in ports).items() if count > 1]
    if twice:
        raise FuselineError(f"the operator {label} has the port {twice[0]!r} twice in {listed!r}")
    return ports


def _port(label: str, text: str) -> onnx.defs.OpSchema.FormalParameter:
    name, _, kind = (part.strip() for part in text.partition(":"))
    option = _OPTIONS.get(name[-1:], _OPTION.Single)
    plain = name[:-1] if name[-1:] in _OPTIONS else name
    if not plain.isidentifier():
        raise FuselineError(
            f"{text.strip()!r} is no port of {label}", hint='for example "x", "i: int64", "bias?", "rest*"'
        )
    # ONNX has a variadic port take one value at least.
    return _PARAMETER(plain, f"tensor({kind})" if kind else "T", param_option=option, min_arity=0)


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
        alike = (fixed[min(i, len(fixed) - 1)] for i in range(len(site.node.outputs)))
        return [(dtype or site.dtype(index), site.dims(index)) for dtype in alike]

    return rule


def _finder(
    label: str, library: str | Path | Callable[[], str | Path | None] | None
) -> Callable[[], Path | None] | None:
    if library is None:
        return None
    if isinstance(library, str | Path):
        return Library(Path(library).absolute())
    if not callable(library):
        raise FuselineError(
            f"the library of {label} is {library!r}, neither a path nor a function that gives one"
        )

    def find() -> Path | None:
        try:
            found = library()
            return None if found is None else Path(found).absolute()
        except Exception as error:  # it is the user's
            where = f"the library of {label} cannot be found, at {raised_at(error)}"
            raise FuselineError(f"{where}: {type(error).__name__}: {error}") from error

    return find
