"""Whether a finished training graph runs on stock ONNX Runtime, which has no training operators."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.operators import Trait, record

__all__ = ["check_portable", "training_only"]


def training_only(model: Model) -> Counter[str]:
    """Operators of the graph that only the training build knows, with their number."""
    return Counter(
        f"{node.domain}.{node.op_type}"
        for node in model.nodes()
        if node.domain == "com.microsoft" and not _is_stock(node)
    )


def _is_stock(node: ir.Node) -> bool:
    operator = record(node)
    return operator is not None and not operator.has(Trait.TRAINING)


def check_portable(model: Model) -> None:
    """Refuse a graph that stock ONNX Runtime could not run."""
    found = training_only(model)
    if found:
        listed = ", ".join(f"{name} ({count})" for name, count in found.most_common())
        raise ModelError(
            f"the graph has operators that only ONNX Runtime's training build knows: {listed}",
            hint="run the pass 'lower-training-operators' on it",
        )
