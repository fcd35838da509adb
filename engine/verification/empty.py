"""What ONNX Runtime itself cannot run without elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from fuseline.engine.model import Model

__all__ = ["ENDS_ON_EMPTY", "ends_on", "is_empty"]

ENDS_ON_EMPTY = frozenset({("com.microsoft", "MultiHeadAttention")})
"""Operators whose kernels divide by a size: without a batch or a query they end the process."""


def is_empty(feeds: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether an input has no elements."""
    return any(array.size == 0 for array in feeds.values())


def ends_on(model: Model, feeds: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether running the model on these inputs would end the process by a fault that is not the model's."""
    return is_empty(feeds) and any((n.domain, n.op_type) in ENDS_ON_EMPTY for n in model.nodes())
