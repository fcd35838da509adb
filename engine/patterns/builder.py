"""Builds the nodes that take a match's place."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.errors import PassError
from fuseline.engine.model import Model
from fuseline.engine.naming import fresh_name

__all__ = ["Builder"]


class _NodeMaker(Protocol):
    def __call__(self, *inputs: Any, **attributes: Any) -> Any: ...


class Builder:
    """`op.Gelu(x, _domain="com.microsoft")` makes a node and returns its output.

    Inputs are values, None, or numbers and arrays (which become constants). `_outputs` is a number, or a
    tuple of booleans saying which outputs are wanted; `_like` copies type and shape from a value.
    """

    def __init__(self, model: Model, graph: ir.Graph | ir.Function, stem: str) -> None:
        self.model = model
        self.graph = graph
        self.stem = stem
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []

    def __getattr__(self, op_type: str) -> _NodeMaker:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.node(op_type, *inputs, **attributes)

    def node(
        self,
        op_type: str,
        *inputs: Any,
        _domain: str = "",
        _outputs: int | tuple[bool, ...] = 1,
        _like: ir.Value | None = None,
        **attributes: Any,
    ) -> Any:
        """A node and its output, or a tuple of outputs if it has several."""
        count = _outputs if isinstance(_outputs, int) else len(_outputs)
        values = _strip([i if isinstance(i, ir.Value) or i is None else self.constant(i) for i in inputs])
        given = {k: v for k, v in attributes.items() if v is not None}
        node = ir.node(op_type, values, given, domain=_domain, num_outputs=count)
        if isinstance(_outputs, tuple):
            for value, wanted in zip(node.outputs, _outputs, strict=True):
                value.name = None if wanted else ""
        if _like is not None:
            node.outputs[0].type, node.outputs[0].shape = _like.type, _like.shape
        self.nodes.append(node)
        return node.outputs[0] if count == 1 else tuple(node.outputs)

    def constant(self, content: Any, name: str = "constant") -> ir.Value:
        """A constant: an initializer, or a Constant node where a graph can hold no initializers."""
        array = _narrow(content)
        if not isinstance(self.graph, ir.Graph):
            made: ir.Value = self.node("Constant", value=ir.tensor(array))
            return made
        label = fresh_name(f"{self.stem}/{name}", self._taken)
        value = ir.Value(name=label, const_value=ir.tensor(array, name=label))
        value.shape, value.type = ir.Shape(array.shape), ir.TensorType(ir.DataType.from_numpy(array.dtype))
        self.initializers.append(value)
        return value

    def _taken(self, name: str) -> bool:
        assert isinstance(self.graph, ir.Graph)
        return name in self.graph.initializers or any(v.name == name for v in self.initializers)

    def commit(self) -> None:
        """Register what the new nodes need in their graph and model."""
        for value in self.initializers:
            assert isinstance(self.graph, ir.Graph)
            self.graph.register_initializer(value)
        for node in self.nodes:
            if node.domain and node.domain not in self.model.graph.opset_imports:
                self.model.graph.opset_imports[node.domain] = 1


def _narrow(content: Any) -> npt.NDArray[Any]:
    if isinstance(content, bool | np.ndarray | np.generic):
        return np.asarray(content)
    array = np.asarray(content)
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype.kind not in "bif":
        raise PassError(f"a replacement uses {content!r} as an input, which is neither value nor number")
    return array


def _strip(values: list[ir.Value | None]) -> list[ir.Value | None]:
    """Absent inputs at the end are left out."""
    while values and values[-1] is None:
        values.pop()
    return values
