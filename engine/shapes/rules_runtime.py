"""Output types and shapes of operators that ONNX Runtime adds."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.shapes.dims import Dims
from fuseline.engine.shapes.rules import broadcast
from fuseline.engine.shapes.site import Rule, Site, Typing

__all__ = [
    "attention",
    "batch_norm_internal",
    "embedding",
    "fused_matmul",
    "multi_head",
    "skip_norm",
    "typed_like",
]


def skip_norm(site: Site) -> list[Typing]:
    dims = site.dims()
    statistics = None if dims is None else (*dims[:-1], 1)
    return [
        (site.dtype(), dims),
        (ir.DataType.FLOAT, statistics),
        (ir.DataType.FLOAT, statistics),
        (site.dtype(), dims),
    ]


def typed_like(index: int) -> Rule:
    """A result of the element type that an input has; nothing is said of its shape."""
    return lambda site: [(site.dtype(index), None)]


def fused_matmul(site: Site) -> list[Typing]:
    if site.attribute("transBatchA", 0) or site.attribute("transBatchB", 0):
        return [(site.dtype(), None)]
    left, right = site.dims(0), site.dims(1)
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return [(site.dtype(), None)]
    rows = left[-1] if site.attribute("transA", 0) else left[-2]
    columns = right[-2] if site.attribute("transB", 0) else right[-1]
    batch = broadcast([left[:-2], right[:-2]])
    return [(site.dtype(), None if batch is None else (*batch, rows, columns))]


def attention(site: Site) -> list[Typing]:
    """[B,S,width]; without given sizes, q, k and v share the columns of the weights."""
    x, weights = site.dims(0), site.dims(1)
    width = weights[-1] if weights else None
    if x is None or not isinstance(width, int) or "qkv_hidden_sizes" in site.node.attributes:
        return [(site.dtype(), None)]
    return [(site.dtype(), (*x[:-1], width // 3))]


def multi_head(site: Site) -> list[Typing]:
    """[B,S,H·D] from [B,S,H·D] and values [B,T,H·D] or [B,H,T,D]; the keys and values with their past."""
    query, value = site.dims(0), site.dims(2)
    if query is None or len(query) != 3 or value is None:
        return [(site.dtype(), None)]
    width = value[2] if len(value) == 3 else _times(value[1], value[3])
    made: list[Typing] = [(site.dtype(), (*query[:2], width))]
    for index in (1, 2):
        own = site.dims(index)
        four = own if own is not None and len(own) == 4 else None
        made.append((site.dtype(), None if four is None else (four[0], four[1], None, four[3])))
    return made


def _times(one: int | str | None, other: int | str | None) -> int | None:
    return one * other if isinstance(one, int) and isinstance(other, int) else None


def embedding(site: Site) -> list[Typing]:
    ids, table = site.dims(0), site.dims(2)
    dims: Dims | None = None if ids is None or table is None else (*ids, table[-1])
    batch = None if ids is None else ids[:1]
    return [(site.dtype(2), dims), (ir.DataType.INT32, batch), (site.dtype(2), dims)]


def batch_norm_internal(site: Site) -> list[Typing]:
    statistic = (site.dtype(3), site.dims(3))
    return [(site.dtype(), site.dims()), *[statistic] * 4]
