"""Reading constants of a graph without touching what must not be read or frozen."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, is_op

__all__ = ["constant", "is_constant", "is_variable", "scalar", "tensor_of"]

Array = npt.NDArray[Any]


def tensor_of(value: ir.Value) -> ir.TensorProtocol | None:
    """The content of an initializer or of a Constant node, whoever may feed or train it; else None."""
    node = value.producer()
    if node is not None and has_references(node):
        return None  # a function's attribute: what it holds, each call says
    if node is not None and is_op(node, "Constant"):
        # onnx_ir takes text for ASCII.
        if "value_string" in node.attributes:
            return ir.StringTensor([node.attributes["value_string"].as_string().encode()], shape=ir.Shape(()))
        if "value_strings" in node.attributes:
            texts = [text.encode() for text in node.attributes["value_strings"].as_strings()]
            return ir.StringTensor(texts, shape=ir.Shape((len(texts),)))
    return ir.convenience.get_const_tensor(value, propagate_shape_type=False)


def is_constant(model: Model, value: ir.Value | None) -> bool:
    """Whether the value is fixed: a Constant node or an initializer that nobody can feed or train."""
    if value is None:
        return False
    producer = value.producer()
    if producer is not None:
        return is_op(producer, "Constant") and bool(producer.attributes) and not has_references(producer)
    if not value.is_initializer() or (value.is_graph_input() and model.ir.ir_version >= 4):
        # Before IR 4 every initializer had to be listed as an input too, and nobody could feed it.
        return False
    return value.const_value is not None and not is_variable(model, value.name)


def is_variable(model: Model, name: str | None) -> bool:
    """Whether this initializer may come to hold other values.

    Training changes parameters, and buffers that each step rewrites. Where parameters are fed, frozen ones
    may be others at every run as well.
    """
    if model.facts.interface.fed and any(p.kind == "parameter" for p in model.parameters.of_value(name)):
        return True
    return model.parameters.is_trainable(name) or name in model.facts.training.updates.values()


def constant(model: Model, value: ir.Value | None, *, at_most: int | None = 1 << 20) -> Array | None:
    """The content of a constant value, or None if it is not constant or has more than `at_most` elements.

    Weights of any size come with `at_most=None`.
    """
    if value is None or not is_constant(model, value):
        return None
    tensor = tensor_of(value)
    if tensor is None or tensor.dtype == ir.DataType.STRING:
        return None
    return tensor.numpy() if at_most is None or tensor.size <= at_most else None


def scalar(model: Model, value: ir.Value | None) -> float | None:
    """The single element of a constant, or None."""
    array = constant(model, value, at_most=1)
    return float(np.reshape(array, ())) if array is not None and array.size == 1 else None
