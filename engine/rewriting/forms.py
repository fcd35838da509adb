"""The form that an operator has in a model's opset: passes write the newest one, older models get theirs.

What has become an input since (the axes of Squeeze, the bounds of Clip) goes back to being an attribute, by
name, where its content is known; what only a newer version has is left out where it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from fuseline.engine.errors import PassError
from fuseline.engine.operators.signatures import Signature, signature

__all__ = ["Inexpressible", "in_form"]

Array = npt.NDArray[Any]
Inputs = list[ir.Value | Array | None]
Attributes = dict[str, Any]
Read = Callable[[ir.Value | Array], Array | None]

_RENAMED = {("Pad", "constant_value"): "value"}
"""Inputs that were attributes of another name."""


class Inexpressible(PassError):
    """What the model's opset or the runtime has no operator for: the rewrite has to stay out."""


def in_form(
    op_type: str, inputs: Sequence[ir.Value | Array | None], attributes: Attributes, opset: int, read: Read
) -> tuple[Inputs, Attributes]:
    """Inputs and attributes of a standard operator, given in its newest form, as the opset has them."""
    newest = signature("", op_type, onnx.defs.onnx_opset_version())
    there = signature("", op_type, opset)
    if newest is None or there is None or newest is there or newest.since == there.since:
        return list(inputs), attributes
    kept, moved = _inputs(newest, there, inputs, opset, read)
    return kept, {**_attributes(newest, there, attributes, opset), **moved}


def _inputs(
    newest: Signature, there: Signature, inputs: Sequence[ir.Value | Array | None], opset: int, read: Read
) -> tuple[Inputs, Attributes]:
    kept: Inputs = []
    moved: Attributes = {}
    for index, value in enumerate(inputs):
        port = newest.input(index)
        if port is None or there.input(index) is not None:
            kept.append(value)
        elif value is not None:
            name = _RENAMED.get((newest.op_type, port.name), port.name)
            content = read(value)
            if content is None:
                raise Inexpressible(f"{newest.op_type} takes no computed {port.name!r} in opset {opset}")
            if name in there.kinds:
                moved[name] = content.item() if content.ndim == 0 else content.tolist()
            elif port.name != "steps" or not bool((np.asarray(content) == 1).all()):
                raise Inexpressible(f"{newest.op_type} has no {port.name!r} in opset {opset}")
    return kept, moved


def _attributes(newest: Signature, there: Signature, attributes: Attributes, opset: int) -> Attributes:
    kept = {}
    for name, value in attributes.items():
        if name in there.kinds:
            kept[name] = value
        elif name in newest.kinds and value != newest.defaults[name]:
            raise Inexpressible(f"{newest.op_type} has no attribute {name!r} in opset {opset}")
        elif name not in newest.kinds:
            kept[name] = value  # the check of the node names it
    return kept
