"""What a user's operator is held to: its shape rule and its reference give what its schema declares."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from fuseline.engine.errors import FuselineError
from fuseline.engine.operators.evaluation import Made, Operands
from fuseline.engine.operators.gradient import GradientNode
from fuseline.engine.plurals import counted
from fuseline.engine.type_names import data_type

if TYPE_CHECKING:
    from fuseline.engine.shapes.site import Site, Typing

__all__ = ["checked_gradient", "checked_reference", "checked_rule"]

Array = npt.NDArray[Any]
_OPTION = onnx.defs.OpSchema.FormalParameterOption


def checked_rule(
    schema: onnx.defs.OpSchema, rule: Callable[[Site], Iterable[Typing] | None] | None
) -> Callable[[Site], Sequence[Typing] | None] | None:
    """The rule, whose answer is refused if it is none: what it says is believed by every pass."""
    if rule is None:
        return None
    name = f"{schema.domain}::{schema.name}"
    if not callable(rule):
        raise FuselineError(
            f"the shape of {name} is {rule!r}, which is neither the name of an input nor a rule",
            hint="a rule is called with a Site, and gives one (type, sizes) for each output",
        )

    _check_call(name, "shape rule", rule, ["site"], {})
    place = _place_of(rule)

    def checked(site: Site) -> Sequence[Typing] | None:
        found = rule(site)
        if found is None:
            return None
        listed = list(found) if isinstance(found, Iterable) else [found]
        if len(listed) != len(site.node.outputs) or not all(map(_is_typing, listed)):
            wanted = counted(len(site.node.outputs), "output")
            raise FuselineError(
                f"the shape rule of {name}{place} gave {found!r} for {wanted}",
                hint="it gives one (type, sizes) for each: an ir.DataType and a tuple of numbers and names, "
                "or None for what is not known",
            )
        return [(dtype, None if dims is None else tuple(map(_size, dims))) for dtype, dims in listed]

    return checked


def _is_typing(given: Any) -> bool:
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    dtype, dims = given
    sized = isinstance(dims, tuple | list) and all(
        d is None or isinstance(d, str) or (isinstance(d, int | np.integer) and d >= 0) for d in dims
    )
    return (dtype is None or isinstance(dtype, ir.DataType)) and (dims is None or sized)


def _size(given: Any) -> int | str | None:
    return int(given) if isinstance(given, np.integer) else given


def checked_reference(
    schema: onnx.defs.OpSchema, reference: Callable[..., Any]
) -> Callable[[Operands], Made]:
    """The reference on a node's inputs and attributes; it gives what the outputs are declared as."""
    name = f"{schema.domain}::{schema.name}"
    defaults = {key: onnx.helper.get_attribute_value(a.default_value) for key, a in schema.attributes.items()}
    if not callable(reference):
        raise FuselineError(f"the reference of {name} is {reference!r}, which is no function")
    for ports in _calls(schema):
        _check_call(name, "reference", reference, ports, defaults)
    label = f"the reference of {name}{_place_of(reference)}"

    def evaluate(operands: Operands) -> Made:
        given = {key: a.value for key, a in operands.node.attributes.items()}
        # What it writes to would be the model's weights.
        arrays = [None if a is None else _read_only(a) for a in operands.inputs]
        try:
            found = reference(*arrays, **(defaults | given))
        except (Exception, SystemExit) as error:
            raise FuselineError(f"{label}: {type(error).__name__}: {error}") from error
        made = [np.asarray(a) for a in found] if isinstance(found, tuple | list) else [np.asarray(found)]
        if len(made) != len(operands.node.outputs):
            wanted = counted(len(operands.node.outputs), "output")
            raise FuselineError(f"{label} gave {counted(len(made), 'array')} for {wanted}")
        return [
            _declared(label, array, _output_type(schema, index, operands.inputs))
            for index, array in enumerate(made)
        ]

    return evaluate


def checked_gradient(schema: onnx.defs.OpSchema, given: Iterable[GradientNode]) -> tuple[GradientNode, ...]:
    """The nodes, which read and write nothing that the operator does not have."""
    name = f"{schema.domain}::{schema.name}"
    nodes = tuple(given) if isinstance(given, Iterable) else (given,)
    made: set[str] = set()
    for node in nodes:
        if not isinstance(node, GradientNode):
            raise FuselineError(
                f"the gradient of {name} holds {node!r}", hint='GradientNode("Mul", ("GO(0)", "I(0)"))'
            )
        known = _places(("I", schema.inputs), ("O", schema.outputs), ("GO", schema.outputs))
        for text in node.inputs:
            if isinstance(text, str) and text not in made and not known(text):
                raise FuselineError(f"the gradient of {name} reads {text!r}, which nothing makes")
        for text in node.outputs:
            if "(" in text and not _places(("GI", schema.inputs))(text):
                raise FuselineError(f"the gradient of {name} makes {text!r}, which is no input's")
        made.update(node.outputs)
    return nodes


def _places(*kinds: tuple[str, Sequence[Any]]) -> Callable[[str], bool]:
    """Whether a text is `I(1)` or the like, of a port that there is."""

    def has(text: str) -> bool:
        found = re.fullmatch(r"(\w+)\((\d+)\)", text)
        ports = dict(kinds).get(found[1]) if found else None
        if not found or not ports:
            return False
        return int(found[2]) < len(ports) or ports[-1].option == _OPTION.Variadic

    return has


def _place_of(function: Callable[..., Any]) -> str:
    """Where a user's function is written, for a message."""
    code = getattr(function, "__code__", None)
    return f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _calls(schema: onnx.defs.OpSchema) -> Iterator[list[str]]:
    """The inputs of the shortest and of the longest node."""
    needed = [p.name for p in schema.inputs if p.option == _OPTION.Single]
    last = [p for p in schema.inputs if p.option != _OPTION.Single]
    yield needed
    if last:
        more = [f"{p.name}…" for p in last if p.option == _OPTION.Variadic]
        yield [*(p.name for p in schema.inputs), *more]


def _check_call(
    name: str, what: str, function: Callable[..., Any], given: Sequence[str], named: Mapping[str, Any]
) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # a function of numpy's own need not have one
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        listed = ", ".join([*given, *(f"{key}=…" for key in named)])
        raise FuselineError(
            f"the {what} of {name}{_place_of(function)} cannot be called with ({listed}): {error}"
        ) from error


def _output_type(
    schema: onnx.defs.OpSchema, index: int, inputs: Sequence[Array | None]
) -> np.dtype[Any] | None:
    """The element type of an output: its own, or that of the inputs that share it."""
    port = schema.outputs[min(index, len(schema.outputs) - 1)]
    fixed = [data_type(kind) for kind in port.types]
    if len(fixed) == 1 and fixed[0] is not None:
        return fixed[0].numpy()
    ports = schema.inputs
    alike = (a for i, a in enumerate(inputs) if ports[min(i, len(ports) - 1)].type_str == port.type_str)
    return next((a.dtype for a in alike if a is not None), None)


def _declared(label: str, array: Array, dtype: np.dtype[Any] | None) -> Array:
    """The array in the declared type: numpy computes in wider ones at times, but of the same kind."""
    if array.dtype == object:
        raise FuselineError(f"{label} gave {array.tolist()!r}, which is no array of numbers")
    if dtype is None or array.dtype == dtype:
        return array
    if array.dtype.kind != dtype.kind:
        raise FuselineError(f"{label} gave {array.dtype}, but its output is {dtype}")
    return array.astype(dtype)
