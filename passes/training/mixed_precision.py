"""The pass `mixed-precision`."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import is_standard
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["MixedPrecision"]

_MARK = "fuseline.precision"
_TYPES = {"bf16": ir.DataType.BFLOAT16, "fp16": ir.DataType.FLOAT16}


class MixedPrecision(Pass):
    """MatMul(a, b) → MatMul on a and b rounded to low precision, its result rounded too

    Weights, sums and everything outside `allow` stay in fp32, so that the optimizer works on master weights.
    With `emulate` (for processors without such kernels) a value is cast down and up again around an fp32
    operator: the same numbers at the old speed. Without it the operator itself works in low precision. The
    gradient builder mirrors both kinds of casts, so that gradients are rounded where they would be.
    """

    name = "mixed-precision"
    phase = "pre-gradient"
    ensures = (Property.MIXED_PRECISION,)
    to: Literal["bf16", "fp16"] = "bf16"
    allow: tuple[str, ...] = ("MatMul", "Gemm")
    """Operators that work in low precision."""
    deny: tuple[str, ...] = ()
    """Nodes, by the beginning of their names or of their torch modules' names, that stay in fp32."""
    emulate: bool = True

    def run(self, model: Model, rewriter: Rewriter) -> int:
        rounded: dict[tuple[int, ir.Value], ir.Value] = {}
        for node in list(model.nodes()):
            if node.op_type not in self.allow or not is_standard(node) or _MARK in node.metadata_props:
                continue
            reason = self._refusal(node)
            if reason is not None:
                rewriter.reject(node, reason)
            elif rewriter.permit(node, self.summary()):
                self._lower(rewriter, node, rounded)
        return rewriter.changes

    def _refusal(self, node: ir.Node) -> str | None:
        names = (node.name or "", node.metadata_props.get("fuseline.module", ""))
        for beginning in self.deny:
            if any(name.startswith(beginning) for name in names):
                return f"'{beginning}' is denied"
        for value in node.inputs:
            if value is not None and value.dtype not in (ir.DataType.FLOAT, None):
                return f"input {value.name!r} is {value.dtype}, not FLOAT"
        if len(node.outputs) > 1:
            return "it has more outputs than one"
        return None

    def _lower(
        self, rewriter: Rewriter, node: ir.Node, rounded: dict[tuple[int, ir.Value], ir.Value]
    ) -> None:
        low, full = _TYPES[self.to], ir.DataType.FLOAT
        op = rewriter.builder(node)
        inputs: list[ir.Value | None] = []
        for value in node.inputs:
            if value is None:
                inputs.append(None)
                continue
            key = (id(node.graph), value)
            if key not in rounded:
                rounded[key] = _cast(op, value, (low, full) if self.emulate else (low,))
            inputs.append(rounded[key])
        (result,) = op.copy(node, inputs, outputs=1)
        op.nodes[-1].metadata_props[_MARK] = self.to
        final = _cast(op, result, (low, full) if self.emulate else (full,))
        rewriter.replace([node], op.nodes, [(node.outputs[0], final)])


def _cast(op: Builder, value: ir.Value, types: tuple[ir.DataType, ...]) -> ir.Value:
    """The value through one type after the other."""
    for dtype in types:
        value = op.Cast(value, to=dtype.value)
    return value
