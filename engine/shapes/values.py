"""What is known of integer tensors that hold shapes, element by element, some of them symbolic.

`Shape(x)` of a float[N,3,H,W] is (N, 3, H, W); picking, joining and computing with such tensors keeps what is
known. A scalar is a one-element tuple with `rank` 0.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, opset_of
from fuseline.engine.operators import record
from fuseline.engine.shapes.known import INTEGERS, Known
from fuseline.engine.shapes.value_rules import LARGEST

__all__ = ["ShapeValues"]

_DEEPEST = 100  # how far behind a value is looked for what it holds


class ShapeValues:
    """Known contents of values, learnt where they are asked for.

    Whoever visits nodes in topological order keeps what is asked of each short. `opset` is that of nodes
    which are in no graph yet.
    """

    def __init__(self, model: Model, *, opset: int = 0) -> None:
        self.model = model
        self._opset = opset
        self._depth = 0
        self._known: dict[ir.Value, Known | None] = {}

    def __getitem__(self, value: ir.Value | None) -> Known | None:
        if value is None:
            return None
        if value not in self._known:
            self._known[value] = self._constant(value)
            producer = value.producer()
            whole = value.dtype is None or value.dtype in INTEGERS
            if producer is not None and whole and self._known[value] is None and self._depth < _DEEPEST:
                self._depth += 1
                self.visit(producer)
                self._depth -= 1
        return self._known[value]

    def numbers(self, value: ir.Value | None) -> tuple[int, ...] | None:
        found = self[value]
        return found.numbers if found is not None else None

    def visit(self, node: ir.Node) -> Known | None:
        """Learn what the node's output holds."""
        operator = record(node)
        if operator is None or operator.content is None or has_references(node):
            return None
        found = self._known.get(node.outputs[0])
        if found is not None:
            return found
        found = operator.content(self, node)
        if found is not None and len(found.items) <= LARGEST:
            found = found.wrapped()
            self._known[node.outputs[0]] = found
            return found
        return None

    def learn(self, value: ir.Value, found: Known) -> Known:
        """What the caller knows better."""
        self._known[value] = found
        return found

    def opset(self, node: ir.Node) -> int:
        return self._opset if node.graph is None and self._opset else opset_of(self.model, node)

    def axes(self, node: ir.Node, since: int = 13) -> tuple[int, ...] | None:
        """The axes of Squeeze, Unsqueeze and the like; () if absent, None if unknown."""
        if self.opset(node) < since:
            return tuple(node.attributes.get_ints("axes", ()))
        if len(node.inputs) < 2 or node.inputs[1] is None:
            return ()
        return self.numbers(node.inputs[1])

    def _constant(self, value: ir.Value) -> Known | None:
        if value.dtype not in INTEGERS and value.dtype is not None:
            return None
        array = constant(self.model, value, at_most=LARGEST)
        if array is None or array.ndim > 1 or array.dtype not in (np.int64, np.int32):
            return None
        dtype = ir.DataType.INT64 if array.dtype == np.int64 else ir.DataType.INT32
        return Known(tuple(int(i) for i in array.reshape(-1)), array.ndim, dtype)
