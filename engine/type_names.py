"""Element types by the names that schemas and sessions have for them: `tensor(float)`."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["data_type"]

_BY_NAME = {f"tensor({dtype.name.lower()})": dtype for dtype in ir.DataType}


def data_type(name: str) -> ir.DataType | None:
    """The element type of a tensor; None of what is no tensor, such as `seq(tensor(float))`."""
    return _BY_NAME.get(name)
