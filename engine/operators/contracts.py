"""What a user's operator is held to: its shape rule and its reference give what its schema declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from fuseline.engine.errors import FuselineError
from fuseline.engine.operators.evaluation import Made, Operands
from fuseline.engine.type_names import data_type

if TYPE_CHECKING:
    from fuseline.engine.shapes.site import Site, Typing

__all__ = ["checked_reference", "checked_rule"]

Array = npt.NDArray[Any]


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

    def checked(site: Site) -> Sequence[Typing] | None:
        found = rule(site)
        if found is None:
            return None
        listed = list(found) if isinstance(found, Iterable) else [found]
        if len(listed) != len(site.node.outputs) or not all(map(_is_typing, listed)):
            raise FuselineError(
                f"the shape rule of {name} gave {found!r} for {len(site.node.outputs)} outputs",
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
    _check_parameters(schema, reference, defaults)

    def evaluate(operands: Operands) -> Made:
        given = {key: a.value for key, a in operands.node.attributes.items()}
        found = reference(*operands.inputs, **(defaults | given))
        made = [np.asarray(a) for a in found] if isinstance(found, tuple | list) else [np.asarray(found)]
        if len(made) != len(operands.node.outputs):
            raise FuselineError(
                f"the reference of {name} gave {len(made)} arrays for {len(operands.node.outputs)} outputs"
            )
        return [
            _declared(name, array, _output_type(schema, index, operands.inputs))
            for index, array in enumerate(made)
        ]

    return evaluate


def _check_parameters(
    schema: onnx.defs.OpSchema, reference: Callable[..., Any], defaults: dict[str, Any]
) -> None:
    try:
        signature = inspect.signature(reference)
    except ValueError:
        return  # a function of numpy's own need not have one
    needed = [p.name for p in schema.inputs if p.option == onnx.defs.OpSchema.FormalParameterOption.Single]
    try:
        signature.bind(*needed, **defaults)
    except TypeError as error:
        listed = ", ".join([*needed, *(f"{key}=…" for key in defaults)])
        raise FuselineError(
            f"the reference of {schema.domain}::{schema.name} cannot be called with ({listed}): {error}"
        ) from error


def _output_type(
    schema: onnx.defs.OpSchema, index: int, inputs: Sequence[Array | None]
) -> np.dtype[Any] | None:
    """The element type of an output: its own, or that of the inputs that share it."""
    own = schema.outputs[min(index, len(schema.outputs) - 1)].type_str
    fixed = data_type(own)
    if fixed is not None:
        return fixed.numpy()
    ports = schema.inputs
    alike = (a for i, a in enumerate(inputs) if ports[min(i, len(ports) - 1)].type_str == own)
    return next((a.dtype for a in alike if a is not None), None)


def _declared(name: str, array: Array, dtype: np.dtype[Any] | None) -> Array:
    """The array in the declared type: numpy computes in wider ones at times, but of the same kind."""
    if dtype is None or array.dtype == dtype:
        return array
    if array.dtype.kind != dtype.kind:
        raise FuselineError(f"the reference of {name} gave {array.dtype}, but its output is {dtype}")
    return array.astype(dtype)
