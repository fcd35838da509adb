"""What ONNX Runtime itself cannot run without elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import normal_domain

__all__ = ["ends_on", "is_empty"]

_NEVER = frozenset({("com.microsoft", "MultiHeadAttention")})
"""Their kernels divide by a size: without a batch or a query they end the process."""
_NOT_IN_HALF = frozenset({("", "LayerNormalization")})
"""In float16 the runtime expands them, and the Reshape inside refuses what is empty."""


def is_empty(feeds: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether an input has no elements."""
    return any(array.size == 0 for array in feeds.values())


def ends_on(model: Model, feeds: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether the model cannot run on these inputs for a reason that is the runtime's and not the model's."""
    return is_empty(feeds) and any(_fragile(n) for n in model.nodes())


def _fragile(node: ir.Node) -> bool:
    operator = (normal_domain(node.domain), node.op_type)
    if operator in _NOT_IN_HALF:
        return node.inputs[0] is not None and node.inputs[0].dtype == ir.DataType.FLOAT16
    return operator in _NEVER
