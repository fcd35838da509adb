"""What a model asks to be fed: name, element type and dimensions of every required input."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.shapes.dims import dims_of

__all__ = ["Dim", "Input", "interface"]

Dim = int | str
"""A fixed size, or the key of a free one: its symbol, or `name#axis` where the model gives no symbol."""


@dataclass(frozen=True)
class Input:
    """One required input. `rank_known` is False where the model declares no shape at all."""

    name: str
    dtype: ir.DataType
    dims: tuple[Dim, ...]
    rank_known: bool = True


def interface(model: Model) -> list[Input]:
    """The inputs that must be fed: graph inputs without a default."""
    defaults = model.graph.initializers
    return [_input(v) for v in model.graph.inputs if v.name not in defaults]


def _input(value: ir.Value) -> Input:
    name = value.name or ""
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        raise ModelError(
            f"input {name!r} is a {type(value.type).__name__}, and only tensors can be generated or read",
            hint="verify this model from Python with inputs of your own",
        )
    if value.dtype is None:
        raise ModelError(f"input {name!r} declares no element type")
    dims = dims_of(value)
    if dims is None:
        return Input(name, value.dtype, (), rank_known=False)
    return Input(name, value.dtype, tuple(f"{name}#{i}" if d is None else d for i, d in enumerate(dims)))
