"""Attention over some tokens of each sequence, which lie behind each other as rows: padding is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fuseline.kernels.dropout import dropout_key, dropout_mask
from fuseline.kernels.operator import Array, GradientNode, Operator, Sizes, optional, port
from fuseline.kernels.ops.attention import (
    ATTENTION_ATTRIBUTES,
    LARGEST_BLOCK,
    attend,
    attend_grad,
    largest_scores,
    packed_axis,
)
from fuseline.kernels.workspace import lines, padded

__all__ = ["ATTENTION_ROWS_OPERATORS"]


class _Tokens:
    """Which tokens of [batch, length] there are."""

    def __init__(self, rows: Array, batch: int, length: int) -> None:
        rows = rows if rows.size else np.arange(batch * length)
        self.batch, self.length = batch, length
        self.entries, self.places = np.divmod(rows, length)

    def whole(self, rows: Array) -> Array:
        """[batch, length, …] with zeros where there is no token."""
        result = np.zeros((self.batch, self.length, *rows.shape[1:]), rows.dtype)
        result[self.entries, self.places] = rows
        return result

    def rows(self, whole: Array) -> Array:
        taken: Array = whole[self.entries, self.places]
        return taken

    def hidden(self) -> Array:
        """[batch, 1, 1, length]: −∞ where there is no token."""
        present = self.whole(np.ones(len(self.entries), bool))
        return np.where(present, np.float32(0), np.float32(-np.inf))[:, None, None, :]

    def order(self) -> Array:
        """How many tokens of its sequence stand before each."""
        return np.arange(len(self.entries)) - np.searchsorted(self.entries, self.entries)


def _kept(queries: _Tokens, keys: _Tokens, heads: int, key: int, ratio: float) -> Array:
    """What dropout multiplies the scores with; rows and keys count what there is."""
    count = len(queries.entries)
    mask = dropout_mask(key, heads * count, keys.length, ratio).reshape(heads, count, keys.length)
    order = keys.whole(keys.order())[queries.entries]
    taken = np.take_along_axis(mask, np.broadcast_to(order, mask.shape), -1)
    return queries.whole(taken.transpose(1, 0, 2)).transpose(0, 2, 1, 3)


def _masked(mask: Array, keys: _Tokens) -> Array:
    return (mask if mask.size else np.float32(0)) + keys.hidden()


def attention_rows(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    bias: Array,
    ratio: Array,
    seed: Array,
    query_rows: Array,
    key_rows: Array,
    sizes: Array,
    scale: float = 0.0,
    causal: int = 0,
    stream: int = 0,
    lowest: float = 0.0,
) -> tuple[Array, ...]:
    queries, keys = _Tokens(query_rows, *sizes[[0, 1]]), _Tokens(key_rows, *sizes[[0, 2]])
    scale = scale or q.shape[-1] ** -0.5
    key = dropout_key(int(seed[0]), stream)
    kept = _kept(queries, keys, q.shape[1], key, float(ratio[0]))
    whole = (queries.whole(q), keys.whole(k), keys.whole(v))
    y, statistics = attend(*whole, _masked(mask, keys), bias, kept, scale, bool(causal), lowest)
    state = np.array([scale, bool(causal), 0, lowest], np.float32)
    saved = queries.rows(statistics.transpose(0, 2, 1, 3)).transpose(1, 0, 2)
    return queries.rows(y), np.ascontiguousarray(saved), state, np.array([key], np.int64)


def attention_rows_grad(
    dy: Array,
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    bias: Array,
    ratio: Array,
    y: Array,
    statistics: Array,
    state: Array,
    key: Array,
    query_rows: Array,
    key_rows: Array,
    sizes: Array,
) -> tuple[Array, ...]:
    queries, keys = _Tokens(query_rows, *sizes[[0, 1]]), _Tokens(key_rows, *sizes[[0, 2]])
    kept = _kept(queries, keys, q.shape[1], int(key[0]), float(ratio[0]))
    whole = (queries.whole(dy), queries.whole(q), keys.whole(k), keys.whole(v))
    saved = queries.whole(statistics.transpose(1, 0, 2)).transpose(0, 2, 1, 3)
    dq, dk, dv, dbias = attend_grad(*whole, _masked(mask, keys), bias, kept, saved, state)
    return queries.rows(dq), keys.rows(dk), keys.rows(dv), dbias


def attention_packed_rows(
    qkv: Array,
    mask: Array,
    bias: Array,
    ratio: Array,
    seed: Array,
    rows: Array,
    sizes: Array,
    scale: float = 0.0,
    causal: int = 0,
    stream: int = 0,
    lowest: float = 0.0,
    interleaved: int = 0,
) -> tuple[Array, ...]:
    q, k, v = _parts(qkv, bool(interleaved))
    options = (scale, causal, stream, lowest)
    y, statistics, state, key = attention_rows(q, k, v, mask, bias, ratio, seed, rows, rows, sizes, *options)
    state[2] = bool(interleaved)
    return y, statistics, state, key


def attention_packed_rows_grad(
    dy: Array,
    qkv: Array,
    mask: Array,
    bias: Array,
    ratio: Array,
    y: Array,
    statistics: Array,
    state: Array,
    key: Array,
    rows: Array,
    sizes: Array,
) -> tuple[Array, ...]:
    saved = (y, statistics, state, key, rows, rows, sizes)
    *operands, dbias = attention_rows_grad(dy, *_parts(qkv, bool(state[2])), mask, bias, ratio, *saved)
    return np.stack(operands, packed_axis(bool(state[2])) - 1), dbias


def _parts(qkv: Array, interleaved: bool) -> tuple[Array, Array, Array]:
    q, k, v = (np.take(qkv, index, packed_axis(interleaved) - 1) for index in range(3))
    return q, k, v


def _longest(inputs: Mapping[str, Sequence[int]]) -> Sizes:
    """How long a sequence can be, where a mask tells: all rows may be of one otherwise."""
    mask = inputs.get("mask", ())
    if len(mask) != 4:
        return {}
    return {name: size for name, size in zip(("queries", "keys"), mask[2:], strict=True) if size > 1}


def _scores(queries: int, keys: int) -> int:
    """Of a block of queries at most, whichever length the longest sequence has."""
    rows = min(queries, LARGEST_BLOCK)
    return min(rows * (padded(keys) + padded(1)), largest_scores(keys) + LARGEST_BLOCK * 2 * padded(1))


def _lengths(sizes: Sizes) -> tuple[int, int]:
    """Queries and keys of the longest sequence at most."""
    rows = sizes["Q"]
    keys = sizes.get("T", rows)
    return min(rows, sizes.get("queries", rows)), min(keys, sizes.get("keys", keys))


def _unwanted_statistics(sizes: Sizes) -> int:
    """Those that nobody wants."""
    return lines(sizes["H"] * sizes["Q"] * 2)


def _forward(sizes: Sizes, threads: int) -> int:
    """Per thread what FusedAttention needs, and three lines for keys that are not neighbours."""
    width = sizes["D"]
    queries, keys = _lengths(sizes)
    operands = lines(padded(keys) * width) + lines(padded(width) * keys)
    task = operands + lines(_scores(queries, keys)) + lines(3 * padded(keys))
    return threads * task


def _unwanted_gradients(sizes: Sizes) -> int:
    """Those that nobody wants."""
    rows, heads, width = (sizes[letter] for letter in "QHD")
    others, groups = sizes.get("T", rows), sizes.get("G", heads)
    return lines(width * (rows * heads + 2 * others * groups))


def _backward(sizes: Sizes, threads: int) -> int:
    width = sizes["D"]
    queries, keys = _lengths(sizes)
    block = min(queries, LARGEST_BLOCK)
    operands = (
        2 * lines(padded(keys) * width) + lines(padded(width) * keys) + 2 * lines(padded(width) * block)
    )
    task = operands + 2 * lines(_scores(queries, keys)) + lines(3 * padded(keys))
    return threads * task


_QUERIES, _KEYS, _PACKED = "Q,H,D", "T,G,D", "Q,3,H,D/Q,H,3,D"
_OPERANDS = (port("q", _QUERIES), port("k", _KEYS), port("v", _KEYS))
_TAIL = (port("mask"), port("bias"), port("ratio", "1"))
_SEED = port("seed", "1", "int64")
_SIZES = port("sizes", "3", "int64")
_ROWS = (port("query_rows", "Q?", "int64"), port("key_rows", "T?", "int64"), _SIZES)
_OWN_ROWS = (port("rows", "Q?", "int64"), _SIZES)
_SAVED = (
    port("y", _QUERIES),
    port("statistics", "H,Q,2"),
    port("state", "4"),
    port("key", "1", "int64"),
)
_OUTPUTS = (
    port("y", _QUERIES),
    optional("statistics", "H,Q,2"),
    optional("state", "4"),
    optional("key", "1", "int64"),
)
_DMASK_DBIAS = (optional("dmask"), optional("dbias"))
_SAVED_NAMES = ("O(0)", "O(1)", "O(2)", "O(3)")

ATTENTION_ROWS_OPERATORS = (
    Operator(
        "FusedAttentionRows",
        "FusedAttention of some tokens, q [rows, heads, width]: query_rows and key_rows number them in "
        "[batch, tokens], rising; none means all. sizes are [batch, queries, keys], and mask and bias are of "
        "the whole: they broadcast to [batch, heads, queries, keys]",
        (*_OPERANDS, *_TAIL, _SEED, *_ROWS),
        _OUTPUTS,
        attention_rows,
        ATTENTION_ATTRIBUTES,
        (
            GradientNode(
                "FusedAttentionRowsGrad",
                ("GO(0)", *(f"I({i})" for i in range(6)), *_SAVED_NAMES, "I(7)", "I(8)", "I(9)"),
                ("GI(0)", "GI(1)", "GI(2)", "GI(3)", "GI(4)"),
            ),
        ),
        _unwanted_statistics,
        _forward,
        _longest,
        product=True,
    ),
    Operator(
        "FusedAttentionRowsGrad",
        "gradient of FusedAttentionRows",
        (port("dy", _QUERIES), *_OPERANDS, *_TAIL, *_SAVED, *_ROWS),
        (optional("dq", _QUERIES), optional("dk", _KEYS), optional("dv", _KEYS), *_DMASK_DBIAS),
        attention_rows_grad,
        workspace=_unwanted_gradients,
        task_workspace=_backward,
        measures=_longest,
        product=True,
    ),
    Operator(
        "FusedAttentionPackedRows",
        "FusedAttentionRows of one qkv [rows, 3, heads, width], or interleaved: [rows, heads, 3, width]",
        (port("qkv", _PACKED), *_TAIL, _SEED, *_OWN_ROWS),
        _OUTPUTS,
        attention_packed_rows,
        {**ATTENTION_ATTRIBUTES, "interleaved": 0},
        (
            GradientNode(
                "FusedAttentionPackedRowsGrad",
                ("GO(0)", *(f"I({i})" for i in range(4)), *_SAVED_NAMES, "I(5)", "I(6)"),
                ("GI(0)", "GI(1)", "GI(2)"),
            ),
        ),
        _unwanted_statistics,
        _forward,
        _longest,
        product=True,
    ),
    Operator(
        "FusedAttentionPackedRowsGrad",
        "gradient of FusedAttentionPackedRows, packed alike",
        (port("dy", _QUERIES), port("qkv", _PACKED), *_TAIL, *_SAVED, *_OWN_ROWS),
        (optional("dqkv", _PACKED), *_DMASK_DBIAS),
        attention_packed_rows_grad,
        workspace=_unwanted_gradients,
        task_workspace=_backward,
        measures=_longest,
        product=True,
    ),
)
