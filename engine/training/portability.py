"""Whether a finished training graph runs on stock ONNX Runtime, which has no training operators."""

from __future__ import annotations

from collections import Counter

from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model

__all__ = ["STOCK_CONTRIB", "check_portable", "training_only"]

STOCK_CONTRIB = frozenset(
    {
        "BiasGelu",
        "FastGelu",
        "FusedGemm",
        "FusedMatMul",
        "Gelu",
        "QuickGelu",
        "SimplifiedLayerNormalization",
    }
)
"""Operators of `com.microsoft` that stock ONNX Runtime has on the CPU."""


def training_only(model: Model) -> Counter[str]:
    """Operators of the graph that only the training build knows, with their number."""
    return Counter(
        f"{node.domain}.{node.op_type}"
        for node in model.nodes()
        if node.domain == "com.microsoft" and node.op_type not in STOCK_CONTRIB
    )


def check_portable(model: Model) -> None:
    """Refuse a graph that stock ONNX Runtime could not run."""
    found = training_only(model)
    if found:
        listed = ", ".join(f"{name} ({count})" for name, count in found.most_common())
        raise ModelError(
            f"the graph has operators that only ONNX Runtime's training build knows: {listed}",
            hint="run the pass 'lower-training-operators' on it",
        )
