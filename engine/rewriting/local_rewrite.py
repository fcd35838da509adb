"""Passes that replace single nodes by a few others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_standard
from fuseline.engine.pass_ import Pass, Phase
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["Builder", "LocalRewrite", "Operand"]

Operand = ir.Value | float | int | Sequence[int] | npt.NDArray[Any] | None


class Builder:
    """Collects the nodes that will stand in for `node`.

    Python numbers become constants: whole numbers and lists of them int64, others of the node's own type.
    """

    def __init__(self, model: Model, node: ir.Node) -> None:
        self.model = model
        self.node = node
        self.nodes: list[ir.Node] = []

    def __call__(self, op_type: str, *inputs: Operand, domain: str = "", **attributes: Any) -> ir.Value:
        """Add a node with one output."""
        return self.several(op_type, *inputs, outputs=1, domain=domain, **attributes)[0]

    def several(
        self, op_type: str, *inputs: Operand, outputs: int, domain: str = "", **attributes: Any
    ) -> Sequence[ir.Value]:
        """Add a node with any number of outputs."""
        values = [self._value(i) for i in inputs]
        given = {k: v for k, v in attributes.items() if v is not None}
        node = ir.node(op_type, values, given, domain=domain, num_outputs=outputs)
        self.nodes.append(node)
        if domain:
            self.model.graph.opset_imports.setdefault(domain, 1)
        return node.outputs

    def constant(self, array: npt.NDArray[Any]) -> ir.Value:
        node = ir.node("Constant", [], {"value": ir.tensor(array)})
        node.outputs[0].type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        node.outputs[0].shape = ir.Shape(array.shape)
        self.nodes.append(node)
        return node.outputs[0]

    def constant_ints(self, numbers: Sequence[int]) -> ir.Value:
        return self.constant(np.array(numbers, np.int64))

    def number(self, number: float) -> ir.Value:
        """A scalar of the node's own type."""
        return self.constant(np.array(number, self._dtype()))

    def read(self, value: ir.Value | None) -> npt.NDArray[Any] | None:
        """The content of a constant, or None."""
        return constant(self.model, value)

    def _value(self, operand: Operand) -> ir.Value | None:
        if operand is None or isinstance(operand, ir.Value):
            return operand
        if isinstance(operand, np.ndarray):
            return self.constant(operand)
        if isinstance(operand, float):
            return self.number(operand)
        return self.constant(np.array(operand, np.int64))

    def _dtype(self) -> npt.DTypeLike:
        for value in self.node.inputs:
            if value is not None and value.dtype is not None and value.dtype.is_floating_point():
                return value.dtype.numpy()
        return np.float32


class LocalRewrite(Pass):
    """Base of fix-ups that look at one node at a time, in all graphs."""

    phase: ClassVar[Phase] = "pre-gradient"
    operators: ClassVar[tuple[str, ...]] = ()
    """The operators it looks at; one outside the standard domain is written `domain::Op`."""

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        """Whether the node needs the fix; a text says why it nearly does."""
        return True

    def build(self, op: Builder, node: ir.Node) -> ir.Value | Sequence[ir.Value | None]:
        """Make the replacement; its values stand for the node's outputs in order (None: unused)."""
        raise NotImplementedError

    def run(self, model: Model, rewriter: Rewriter) -> int:
        wanted = set(self.operators)
        for node in list(model.nodes()):
            if _qualified(node) not in wanted:
                continue
            verdict = self.applies(model, node)
            if isinstance(verdict, str):
                rewriter.reject(node, verdict)
            elif verdict and rewriter.permit(node, self.summary()):
                self._exchange(model, rewriter, node)
        return rewriter.changes

    def _exchange(self, model: Model, rewriter: Rewriter, node: ir.Node) -> None:
        op = Builder(model, node)
        made = self.build(op, node)
        values = [made] if isinstance(made, ir.Value) else list(made)
        pairs = [(old, new) for old, new in zip(node.outputs, values, strict=False) if new is not None]
        rewriter.replace([node], op.nodes, pairs)


def _qualified(node: ir.Node) -> str:
    return node.op_type if is_standard(node) else f"{node.domain}::{node.op_type}"
