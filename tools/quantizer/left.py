"""What stayed in float, node by node, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.manager import Result
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op
from fuseline.engine.quantization.products import operator_of, weighted

__all__ = ["UNKNOWN", "Left", "left_by_training", "left_in_float"]

UNKNOWN = "no pass looked at it"

# Nodes that read what is quantized or rounded, as the passes that made them so have marked them.
_MARKS = ("fuseline.quantized", "fuseline.precision")
_INTEGER = ("Quantize", "Dequantize", "Integer", "QLinear", "QAttention", "NBits")


@dataclass(frozen=True)
class Left:
    """`products`: those that could have been quantized, with the reason; `others`: the rest by operator."""

    products: dict[str, str]
    others: dict[str, int]
    quantized: int


def left_in_float(result: Result) -> Left:
    """Read from the reasons that the passes gave and the graph they left."""
    reasons: dict[str, str] = {}
    quantized = 0
    for record in result.records:
        reasons |= {r.site: r.reason for r in record.rejections}
        if record.name.startswith(("quantize-", "convert-precision")):
            quantized += record.changes
    return _left(result.model, reasons, quantized, UNKNOWN)


def left_by_training(model: Model) -> Left:
    """The same of a model that was trained on grids: what was not, is in float."""
    quantized = sum("Integer" in operator_of(node) for node in model.nodes())
    return _left(model, {}, quantized, "it was not trained on a grid")


def _left(model: Model, reasons: Mapping[str, str], quantized: int, unknown: str) -> Left:
    products: dict[str, str] = {}
    others: Counter[str] = Counter()
    for node in model.nodes():
        operator = operator_of(node)
        if any(word in operator for word in _INTEGER) or any(m in node.metadata_props for m in _MARKS):
            continue
        first = node.outputs[0] if node.outputs else None
        if weighted(node) is not None and _restored(node):
            continue
        if weighted(node) is not None or (operator == "Gather" and (node.name or "") in reasons):
            products[node.name or operator] = reasons.get(node.name or "", unknown)
        elif first is not None and (first.dtype is None or first.dtype.is_floating_point()):
            others[operator] += 1
    return Left(products, dict(others.most_common()), quantized)


def _restored(node: ir.Node) -> bool:
    """Whether the weight of a product is made from integers."""
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    return weight is not None and is_op(weight.producer(), "DequantizeLinear")
