"""What the inspector says of a weight: its type, the elements of a small one, statistics of a large one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = ["Weights"]

_SHOWN = 8
_LARGEST = 1 << 22
_BUDGET = 1 << 26
"""Elements read for statistics in all: a report must not take as long as the run."""


@dataclass
class Weights:
    """Numbers tensors by identity, so that one that no pass touches is described once."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    _known: dict[int, int] = field(default_factory=dict)
    _alive: list[ir.TensorProtocol] = field(default_factory=list)
    _read: int = 0

    def numbers(self, tensors: Mapping[str, ir.TensorProtocol | None]) -> dict[str, int]:
        return {name: self._number(tensor) for name, tensor in tensors.items() if tensor is not None}

    def _number(self, tensor: ir.TensorProtocol) -> int:
        if id(tensor) not in self._known:
            self._known[id(tensor)] = len(self.rows)
            self._alive.append(tensor)  # an identity is unique only among the living
            self.rows.append(self._describe(tensor))
        return self._known[id(tensor)]

    def _describe(self, tensor: ir.TensorProtocol) -> dict[str, Any]:
        shape = ",".join(str(d) for d in tensor.shape)
        row: dict[str, Any] = {"type": f"{tensor.dtype.name.lower()}[{shape}]"}
        if tensor.dtype == ir.DataType.STRING:
            return row
        if tensor.size <= _SHOWN:
            row["elements"] = [_plain(e) for e in np.asarray(tensor.numpy()).reshape(-1)]
        elif tensor.size > _LARGEST or self._read + tensor.size > _BUDGET:
            row["note"] = "too large for statistics"
        else:
            self._read += tensor.size
            row.update(_statistics(tensor.numpy()))
        return row


def _plain(element: Any) -> str:
    return f"{float(element):.6g}" if np.issubdtype(type(element), np.floating) else str(element)


def _statistics(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    numbers = array.astype(np.float64, copy=False).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return {"not finite": int(numbers.size)}
    made = {
        "minimum": f"{finite.min():.4g}",
        "maximum": f"{finite.max():.4g}",
        "mean": f"{finite.mean():.4g}",
        "deviation": f"{finite.std():.4g}",
        "zeros": f"{np.mean(numbers == 0):.1%}",
    }
    if finite.size < numbers.size:
        made["not finite"] = str(numbers.size - finite.size)
    return made
