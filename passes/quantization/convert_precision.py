"""The pass `convert-precision`."""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import constant, is_constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs, has_references, is_standard, opset_of, subgraphs
from fuseline.engine.operators import record as record_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.quantization.products import excluded_by, operator_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["ConvertPrecision"]

_MARK = "fuseline.precision"
_TYPES = {"float16": ir.DataType.FLOAT16, "bfloat16": ir.DataType.BFLOAT16}
_LARGEST = {"float16": 65504.0, "bfloat16": 3.38e38}
# Sums and powers that leave the range or the precision of 16 bits, and look-ups of the runtime's own.
_DENIED = (
    *("CumSum", "Exp", "Pow", "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL2", "Resize", "Range", "TopK"),
    *("Loop", "If", "Scan", "NonMaxSuppression", "RoiAlign", "Cast", "QuantizeLinear", "DequantizeLinear"),
    *("DynamicQuantizeLinear", "Constant", "ConstantOfShape"),
)


class ConvertPrecision(Pass):
    """MatMul(x, w) → Cast(MatMul(Cast(x), 16-bit w)): operators work in 16 bits, the interface stays in float

    Casts between neighbours cancel in `merge-casts`. bfloat16 is for operators that ONNX Runtime has a kernel
    of on the CPU; of float16 accelerators have all, and on the CPU the runtime casts where it has none.
    """

    name = "convert-precision"
    phase = "inference"
    to: Literal["float16", "bfloat16"] = "float16"
    allow: tuple[str, ...] = ()
    """If given, only these operators."""
    deny: tuple[str, ...] = _DENIED
    """Operators that stay in float."""
    exclude: tuple[str, ...] = ()
    """Nodes that stay in float, by name or pattern, or by their torch modules'."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        functions = function_graphs(model)
        for node in list(model.nodes()):
            if _MARK in node.metadata_props or not _reads_float(node):
                continue
            reason = "it stands in a function" if node.graph in functions else self._refusal(model, node)
            if reason is not None:
                rewriter.reject(node, reason)
            elif rewriter.permit(node, self.summary()):
                self._convert(model, rewriter, node)
        return rewriter.changes

    def _refusal(self, model: Model, node: ir.Node) -> str | None:
        operator = operator_of(node)
        pattern = excluded_by(node, self.exclude)
        if pattern is not None:
            return f"{pattern!r} is excluded"
        if has_references(node) or any(True for _ in subgraphs(node)):
            return "it holds graphs or a function's parameters"
        if self.allow and operator not in self.allow and node.op_type not in self.allow:
            return f"{operator} is not among the operators to convert"
        if operator in self.deny or node.op_type in self.deny:
            return f"{operator} is among the operators that stay in float"
        unknown = next((v for v in node.inputs if v is not None and v.dtype is None), None)
        if unknown is not None:
            return f"the type of {unknown.name!r} is not known"
        if not self._has_form(model, node):
            return f"{operator} has no form in {self.to}"
        for value in node.inputs:
            content = constant(model, value, at_most=None)
            if content is not None and content.dtype == np.float32 and content.size:
                largest = float(np.abs(content).max())
                if not largest <= _LARGEST[self.to]:
                    return f"{value.name if value else ''!r} reaches {largest:.3g}, beyond {self.to}"
        return None

    def _has_form(self, model: Model, node: ir.Node) -> bool:
        """Whether the schema takes the type where the node has float, and for bfloat16 a kernel does too."""
        record, low = record_of(node), _TYPES[self.to]
        if record is None:
            return False
        opset = opset_of(model, node) if is_standard(node) else 1
        schema = record.schema(opset)
        if schema is None:
            return False
        first = next(i for i, v in enumerate(node.inputs) if v is not None and v.dtype is ir.DataType.FLOAT)
        port = schema.inputs[min(first, len(schema.inputs) - 1)]
        types = {f"tensor({self.to})"}
        if not types & set(port.types):
            return False
        return self.to == "float16" or record.supports(low, opset=opset)

    def _convert(self, model: Model, rewriter: Rewriter, node: ir.Node) -> None:
        low = _TYPES[self.to]
        op = Builder(rewriter, node)
        inputs = [self._lowered(model, op, v) for v in node.inputs]
        results = op.copy(node, inputs, outputs=len(node.outputs))
        made = op.nodes[-1]
        made.metadata_props[_MARK] = self.to
        pairs = []
        for old, new in zip(node.outputs, results, strict=True):
            if old.name == "":
                new.name = ""
            elif new.dtype is low or (new.dtype is None and old.dtype is ir.DataType.FLOAT):
                pairs.append((old, op.Cast(op.declare(new, dtype=low), to=int(ir.DataType.FLOAT))))
            else:
                pairs.append((old, new))
        rewriter.replace([node], op.nodes, pairs)

    def _lowered(self, model: Model, op: Builder, value: ir.Value | None) -> ir.Value | None:
        if value is None or value.dtype is not ir.DataType.FLOAT:
            return value
        if is_constant(model, value):
            content = constant(model, value, at_most=None)
            assert content is not None
            return op.constant(content.astype(_TYPES[self.to].numpy()), "weight")
        return op.Cast(value, to=int(_TYPES[self.to]))


def _reads_float(node: ir.Node) -> bool:
    return any(v is not None and v.dtype is ir.DataType.FLOAT for v in node.inputs)
