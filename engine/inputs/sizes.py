"""Sizes for free dimensions: guesses from symbols and from the weights an input meets, then alternatives."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from fuseline.engine.inputs.interface import Input
from fuseline.engine.model import Model

__all__ = ["candidates", "free_keys", "implied_sizes"]

Sizes = dict[str, int]

# First match wins; a symbol is compared case-insensitively.
_BY_SYMBOL: tuple[tuple[str, int], ...] = (
    (r"past|cache", 3),
    (r"batch|^n$|^b$|^bs$|dim_0$", 2),
    (r"channel|^c$", 3),
    (r"height|width|^h$|^w$|image", 64),
    (r"samples?$|audio|wav", 1024),
    (r"seq|len|token|time|^t$|^s$|^l$", 8),
)
# Alternatives for a dimension that nothing is known about, in the order in which models tend to like them.
_ALTERNATIVES = (1, 2, 3, 4, 8, 16, 32, 64, 224, 512, 640)
_RANDOM_TRIES = 24
# What has no other dimension is no batch of anything: two elements could not tell And(x, z) from x.
_VECTOR = 16


def free_keys(inputs: Sequence[Input]) -> list[str]:
    return list(dict.fromkeys(d for i in inputs for d in i.dims if isinstance(d, str)))


def candidates(inputs: Sequence[Input], implied: Mapping[str, int], seed: int) -> Iterator[Sizes]:
    """Size assignments to try, best guess first: by name, batch 1, all equal, then reproducible searching."""
    keys = free_keys(inputs)
    first = {k: implied.get(k) or _guess(k, inputs, seed) for k in keys}
    yield first
    if not keys:
        return
    yield {k: 1 if _is_batch(k) else size for k, size in first.items()}
    unknown = [k for k in keys if k not in implied]
    for size in _ALTERNATIVES:
        yield first | {k: 1 if _is_batch(k) else size for k in unknown}
    for key in unknown:
        for size in _ALTERNATIVES:
            yield first | dict.fromkeys(unknown, 1) | {key: size}
    chance = random.Random(seed)
    for _ in range(_RANDOM_TRIES):
        yield first | {k: chance.choice(_ALTERNATIVES) for k in unknown}


def _is_batch(key: str) -> bool:
    return key.endswith("#0") or bool(re.search(r"batch|^n$|^b$|^bs$", key, re.IGNORECASE))


def _guess(key: str, inputs: Sequence[Input], seed: int) -> int:
    grown = seed % 3  # other seeds, other sizes: a baked-in size shows when a second shape is run
    if all(len(i.dims) == 1 for i in inputs if key in i.dims):
        return _VECTOR + grown
    for pattern, size in _BY_SYMBOL:
        if "#" not in key and re.search(pattern, key, re.IGNORECASE):
            return size if size >= 64 else size + grown
    owner, axis = next((i, i.dims.index(key)) for i in inputs if key in i.dims)
    if owner.dtype.is_floating_point() and len(owner.dims) == 4:
        return (2 + grown, 3, 64, 64)[axis]
    if axis == 0:
        return 2 + grown
    if owner.dtype.is_floating_point() and len(owner.dims) == 2 and "#" in key:
        return 512
    return 8 + grown


def implied_sizes(model: Model, inputs: Sequence[Input]) -> Sizes:
    """Free dimensions that the first weight fixes: channels of a Conv, features of a MatMul, Gemm or RNN."""
    found: Sizes = {}
    by_name = {i.name: i for i in inputs}
    for value in model.graph.inputs:
        declared = by_name.get(value.name or "")
        if declared is None or not declared.dims:
            continue
        for node, index in value.uses():
            axis, size = _implied(node, index, len(declared.dims))
            key = declared.dims[axis] if size else None
            if isinstance(key, str):
                found[key] = size
    return found


def _implied(node: ir.Node, index: int, rank: int) -> tuple[int, int]:
    """(axis, size) that the node's weight asks of its data input; size 0 for none."""
    if index != 0 or len(node.inputs) < 2:
        return 0, 0
    weight = node.inputs[1]
    shape = weight.shape if weight is not None else None
    if shape is None or not all(isinstance(d, int) for d in shape) or len(shape) < 2:
        return 0, 0
    dims = [int(d) for d in shape if isinstance(d, int)]
    if node.op_type in ("Conv", "ConvInteger", "QLinearConv") and rank > 1:
        return 1, dims[1] * node.attributes.get_int("group", 1)
    if node.op_type in ("MatMul", "MatMulInteger"):
        return rank - 1, dims[-2]
    if node.op_type == "Gemm" and rank == 2 and not node.attributes.get_int("transA", 0):
        return 1, dims[1] if node.attributes.get_int("transB", 0) else dims[0]
    if node.op_type in ("LSTM", "GRU", "RNN") and rank == 3:
        return 2, dims[2]
    return 0, 0
