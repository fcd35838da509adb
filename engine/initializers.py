"""Initializers: their content says what they are, so that type and shape are never written beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

__all__ = ["add_initializer", "set_content"]


def add_initializer(graph: ir.Graph, name: str, content: npt.NDArray[Any] | ir.TensorProtocol) -> ir.Value:
    """A new initializer of the graph; the name must be free."""
    value = ir.Value(name=name)
    set_content(value, content)
    graph.register_initializer(value)
    return value


def set_content(value: ir.Value, content: npt.NDArray[Any] | ir.TensorProtocol) -> None:
    """Let the value hold this."""
    if isinstance(content, np.ndarray):
        content = ir.tensor(np.require(content, requirements="C"))
    content.name = value.name
    value.const_value = content
    value.type, value.shape = ir.TensorType(content.dtype), ir.Shape(content.shape.numpy())
