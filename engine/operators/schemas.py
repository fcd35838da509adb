"""The schemas of standard operators, by opset."""

from __future__ import annotations

import functools

import onnx

__all__ = ["find"]


@functools.lru_cache(maxsize=4096)
def find(domain: str, op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    """The schema that holds in an opset; None if there is no such operator in it."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
