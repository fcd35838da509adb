"""What is a tensor, and content hashes of tensors: computed when asked for, once per tensor."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any, TypeGuard

import numpy as np
import onnx_ir as ir

__all__ = ["content_hash", "is_tensor", "same_content"]

_known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_tensors: dict[type, bool] = {}


def is_tensor(value: Any) -> TypeGuard[ir.TensorProtocol]:
    """Asked of a protocol, which is slow; so once for each class."""
    kind = type(value)
    if kind not in _tensors:
        _tensors[kind] = isinstance(value, ir.TensorProtocol)
    return _tensors[kind]


def content_hash(tensor: ir.TensorProtocol) -> str:
    """Sixteen hexadecimal digits for element type, shape and content."""
    known = _known.get(tensor)
    if known is None:
        known = _known[tensor] = _hash(tensor)
    return known


def _hash(tensor: ir.TensorProtocol) -> str:
    digest = hashlib.blake2b(digest_size=8)
    shape = tuple(int(d) for d in tensor.shape if isinstance(d, int))
    digest.update(f"{tensor.dtype.name}{shape}".encode())
    array = tensor.numpy()
    if array.dtype.kind == "O":
        digest.update(repr(array.tolist()).encode())
    else:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def same_content(one: ir.TensorProtocol | None, other: ir.TensorProtocol | None) -> bool:
    """Whether two tensors are equal, looking at their content only if type and shape leave it open."""
    if one is other:
        return True
    if one is None or other is None or one.dtype != other.dtype or tuple(one.shape) != tuple(other.shape):
        return False
    return content_hash(one) == content_hash(other)
